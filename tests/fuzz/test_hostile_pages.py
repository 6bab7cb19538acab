"""No name in a page creates an element or attribute: the structure is that of name x.

The names of models, tensors, operators, files, boards, labels and data are hostile in
every page that Firmwright writes, and in every value that a notebook displays.
"""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest

import firmwright.notebook.html  # noqa: F401 - registers the views
from firmwright.base.errors import ModelError
from firmwright.cli.printing import print_text
from firmwright.cli.text_table import format_table
from firmwright.flows.measure.profiling import OperatorCost, Profile
from firmwright.flows.model.model import Model
from firmwright.flows.verify.verification import Verification
from firmwright.oracle.compare import Difference
from firmwright.pipeline import Compilation, Options, compile_model, load_module_bytes
from firmwright.report.census_page import CensusEntry, CensusStatus, render_census
from firmwright.report.checked_outputs import CheckedOutputs
from firmwright.report.evaluation import (
    ChangedSample,
    Confusion,
    Evaluation,
    LayerAccuracy,
    RunScores,
    render_evaluation,
)
from firmwright.report.html_page import render_page
from firmwright.report.network import (
    Network,
    NetworkEdge,
    NetworkNode,
    NetworkTensor,
    NodeRole,
)
from firmwright.report.pareto_front import ParetoProgram
from tests.state.model_writer import ModelFile
from tests.unit.report.sample_report import buffer, make_report, operator

NAMES = {
    "script": "<script>alert(1)</script>",
    "end of the script": "</script><script>alert(1)</script>",
    "end of the style": "</style><img src=x onerror=alert(1)>",
    "comment": "<!--<script>",
    "character data": "]]><svg onload=alert(1)>",
    "double quote": '" onmouseover="alert(1)" x="',
    "single quote": "' onmouseover='alert(1)' x='",
    "backquote": "` onmouseover=alert(1) `",
    "expression of a template": "{{ 7 * 7 }}${7*7}<%= 7 %>",
    "statement of a template": "{% raw %}{# x #}{% endraw %}",
    "link": "javascript:alert(1)",
    "data link": "data:text/html,<script>alert(1)</script>",
    "entity": "&lt;b&gt;&quot;&#x3c;b&#62;&amp;amp;",
    "line separators": "a\u2028b\u2029c\u0085d\r\n<b>",
    "right to left": "\u202egpj.exe\u2066\u200f",
    "zero": "a\0<\0script>",
    "escape sequence": "\x1b[31m\x1b]0;title\x07\x9b2J",
    "long": "<b a=b>" * 1000,
    "end of the heading": "</h1></title></table></svg><a href=x>",
    "not unicode": "\udc80<b>\ufffe\U0010ffff",
    "nothing": "",
}
ATTRIBUTES_OF_CODE = ("href", "src", "style", "class", "type", "action", "formaction")


class Structure(HTMLParser):
    """The elements of a page, their attributes' names, and values that have effects."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[object, ...]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        effects = [(name, value) for name, value in attrs if name in ATTRIBUTES_OF_CODE]
        self.found.append((tag, [name for name, _ in attrs], effects))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("end", tag))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", data))

    def handle_decl(self, decl: str) -> None:
        self.found.append(("declaration", decl))

    def handle_pi(self, data: str) -> None:
        self.found.append(("instruction", data))

    def unknown_decl(self, data: str) -> None:
        self.found.append(("unknown", data))

    def handle_data(self, data: str) -> None:
        self.text += data


def structure(page: str) -> list[tuple[object, ...]]:
    parser = Structure()
    parser.feed(page)
    parser.close()
    return parser.found


# ---- Pages ---------------------------------------------------------------------------


def network(name: str) -> Network:
    tensor = NetworkTensor(name, name, (1, 4), 4, name)
    nodes = (
        NetworkNode(NodeRole.INPUT, name, outputs=(tensor,)),
        NetworkNode(
            NodeRole.OPERATOR,
            name,
            0,
            (tensor,),
            (tensor,),
            (tensor,),
            ((name, name),),
            "kernel",
        ),
        NetworkNode(NodeRole.OPERATOR, name, 2, kernel=name),
    )
    edges = (NetworkEdge(0, 1, tensor), NetworkEdge(1, 2, tensor))
    return Network(nodes, edges, {"kernel": name})


def report(name: str) -> str:
    check = CheckedOutputs(name, 3, 0, 0, False, name or "x", name, name)
    data = make_report(
        network=network(name),
        verification=check,
        front=(ParetoProgram(name, name, 1, 2, 3),),
        model=name,
        board=name,
        core=name,
        target=name,
        compiler=name,
        tool_version=name,
        buffers=(buffer(name, 0, 64, (0, 1), kind="input"), *make_report().buffers[1:]),
        operators=(
            operator(0, name, 600, name=name, span=name),
            operator(2, "softmax", 400),
        ),
    )
    return render_page(data)


def census(name: str) -> str:
    entries = [
        CensusEntry(
            name,
            3,
            status,
            reason=name,
            reference=name,
            operators=1,
            macs=8,
            unit="u",
            count=9,
            default_loops=0.5,
            slowest_default=name,
            slowest_default_share=0.5,
        )
        for status in CensusStatus
    ]
    return render_census(entries, name, name)


def evaluated(name: str, classes: int) -> Evaluation:
    return Evaluation(
        name,
        name,
        name,
        4,
        "classification",
        True,
        (name,) * classes,
        (RunScores(name, name, {"top1": 0.5, "output_difference": 0.1}),) * 3,
        1,
        confusions=(Confusion(0, 1, 2), Confusion(1, 1, 2)),
        changed=(ChangedSample(name, 1, 0, 1),),
        compared=2,
        layers=(LayerAccuracy(name, name, 4, 3.0, 0.1, 0.2, 1.0),),
        warnings=(name,),
    )


@cache
def compiled(name: str) -> Compilation:
    file, inner = ModelFile(), name.encode("utf-8", "replace").decode()
    graph = file.graph(inner)
    x = graph.input(inner, "int8", (1, 4), 0.5, 3)
    y = graph.tensor(inner, "int8", (1, 4), 0.5, 3)
    graph.op("RELU6", [x], [y])
    graph.outputs(y)
    module = load_module_bytes(file.data(), f"{name}.tflite")
    return compile_model(replace(module, name=name), Options(name="model"))


def verification(name: str) -> str:
    return Verification(
        name,
        name,
        name,
        name,
        1,
        4,
        1,
        3,
        Difference(0, name, 2, 1, 4),
        False,
        explanation=name,
    )._repr_html_()


def profile(name: str) -> str:
    cost = OperatorCost(0, name, name, 9, 750, name, 700, name)
    return Profile(name, name, name, 1000, 40, (cost,), 0, 248, 4096)._repr_html_()


PAGES: dict[str, Callable[[str], str]] = {
    "report": report,
    "census": census,
    "evaluation": lambda name: render_evaluation(evaluated(name, 3)),
    "evaluation of many classes": lambda name: render_evaluation(evaluated(name, 30)),
    "evaluation in a notebook": lambda name: evaluated(name, 3)._repr_html_(),
    "model in a notebook": lambda name: Model(compiled(name).imported)._repr_html_(),
    "compilation in a notebook": lambda name: compiled(name)._repr_html_(),
    "profile in a notebook": profile,
    "verification in a notebook": verification,
}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("page", PAGES)
def test_a_name_creates_no_element_and_no_attribute(page: str, kind: str) -> None:
    name, render = NAMES[kind], PAGES[page]
    text = render(name)
    assert text.encode()  # it can be stored
    found = structure(text)
    assert found == structure(render("x" * len(name)))
    assert len(found) > 10


@pytest.mark.parametrize("kind", NAMES)
def test_a_name_on_the_terminal_is_in_one_line_without_controls(kind: str) -> None:
    name = NAMES[kind][:40]
    error = str(ModelError("it is damaged.", where=name, hint="use another."))
    table = format_table(["file", "bytes"], [(name, 1), ("b", 2)])
    stream = io.StringIO()
    print_text(f"{error}\n{table}", stream)
    lines = stream.getvalue().split("\n")
    assert len(lines) == 2 + len(
        format_table(["file", "bytes"], [("x", 1), ("b", 2)]).split("\n")
    )
    categories = {unicodedata.category(letter) for line in lines for letter in line}
    assert not categories & {"Cc", "Cf", "Cs", "Zl", "Zp"}
