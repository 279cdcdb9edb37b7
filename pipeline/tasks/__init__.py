"""What a model is trained to do: one task a file, all of them in the table TASKS."""

from pipeline.tasks.text_classification import TextClassification

TASKS = {TextClassification.name: TextClassification}
