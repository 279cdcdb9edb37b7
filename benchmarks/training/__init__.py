"""Training tokens per second of Ferry's loop and of Hugging Face's Trainer: same rows, same sizes, turn by turn.

Every training is a process of its own, and one of them works at a time: each runs until it has seen so many tokens
more, then the next. A token is one that a text has; padding is none. What is measured runs unchanged: the hook that
counts and waits sits on the model, the same in both.
"""
