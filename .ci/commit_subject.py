"""Check the subject of a commit message: its form and its length.

    python .ci/commit_subject.py FILE   the commit-msg hook of pre-commit

FILE contains the message. Its subject is `area: Imperative summary`, of at most 72
characters. Areas are packages or folders, separated by commas: `usmp, ir: ...`. The
exit status is 1 for a wrong subject.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LENGTH_MAX = 72
FORM = re.compile(r"[\w./-]+(, [\w./-]+)*: [^\sa-z]")
WRITTEN_BY_GIT = re.compile(r"Merge |Revert \"|(fixup|squash|amend)! ")


def subject_problems(subject: str) -> list[str]:
    """Return the problems of a commit's subject."""
    if WRITTEN_BY_GIT.match(subject):
        return []
    problems = []
    if len(subject) > LENGTH_MAX:
        problems.append(f"it has {len(subject)} characters; {LENGTH_MAX} are allowed")
    if not FORM.match(subject):
        problems.append(
            "its form is not `area: Imperative summary`, as in `usmp: Plan pools once`"
        )
    return problems


def main(file: Path) -> int:
    """Check the message in a file; return the exit status."""
    lines = file.read_text(encoding="utf-8").splitlines()
    subject = next(
        (line for line in lines if line.strip() and not line.startswith("#")), ""
    )
    problems = subject_problems(subject)
    for problem in problems:
        print(f"the commit's subject {subject!r}: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
