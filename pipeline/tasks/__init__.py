"""What a model is trained to do: one task a file, all of them in the table TASKS."""

from pipeline.tasks.text_classification import TextClassification
from pipeline.tasks.token_tagging import TokenTagging

Task = TextClassification | TokenTagging
TASKS: dict[str, type[TextClassification] | type[TokenTagging]] = {
    TextClassification.name: TextClassification,
    TokenTagging.name: TokenTagging,
}
