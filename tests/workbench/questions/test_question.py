"""Questions to stored scores: light to import, each with a name of its own and a typed answer."""

from __future__ import annotations

import subprocess
import sys

from workbench.answers.base import Answer
from workbench.questions.question import known_questions


def test_questions_wake_no_torch() -> None:
    code = (
        "from workbench.questions.question import known_questions; known_questions(); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", f"import sys; {code}"], check=True)


def test_every_question_has_a_sentence_a_typed_answer_and_rows_that_are_in_it() -> None:
    for path, question in known_questions().items():
        assert issubclass(question.answer_type(), Answer), path
        assert question.__doc__, path
        assert not question.rows or question.rows in question.answer_type().model_fields, path
        assert all(field.description for field in question.model_fields.values()), path
