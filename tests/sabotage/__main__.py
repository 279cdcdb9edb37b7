"""`python -m tests.sabotage`: print the matrix; exit code 1 unless every fault is refused, every good one accepted."""

from tests.sabotage.matrix import main

if __name__ == "__main__":
    main()
