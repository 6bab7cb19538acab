"""Parser of graph function text; `graph/printer.py` describes the language.

`parse(print(f)) == f`. Using an undefined name is a ModelError unless the use is
written in full.
"""

from firmwright.base.errors import ModelError
from firmwright.base.tokenizer import Token, TokenKind
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.attributes.base import OpAttrs
from firmwright.ir.graph.nodes import Call, Function, State, Value
from firmwright.ir.syntax import SyntaxParser


class GraphParser(SyntaxParser):
    """Parser of graph functions."""

    __slots__ = ("_made",)

    def graph(self) -> Function:
        """Parse `@name(params) -> (results) [state(...)] [attrs {...}] { calls }`."""
        self._made: dict[str, Value] = {}
        name = self.tokens.global_()
        params = tuple(self.items("(", ")", self._make))
        self.tokens.expect("->")
        results = self.items("(", ")", self._result)
        states = []
        if self.tokens.accept("state"):
            states = self.items("(", ")", self._state)
        attrs = self.function_attrs()
        self.tokens.expect("{")
        body: list[Call] = []
        while not self.tokens.accept("}"):
            call = self._line()
            if call is not None:
                body.append(call)
        state = []
        for value, initial, following in states:
            state.append(State(value, self._resolved(following), initial))
        resolved = tuple(map(self._resolved, results))
        return Function(name, params, tuple(body), resolved, attrs, tuple(state))

    def _state(self) -> tuple[Value, str, tuple[str, Value | None, str]]:
        """Parse `%value: type = @initial -> %next`."""
        value = self._make()
        self.tokens.expect("=")
        initial = self.tokens.global_()
        self.tokens.expect("->")
        return value, initial, self._result()

    def _result(self) -> tuple[str, Value | None, str]:
        """Parse a result: its name, its full value if given, and its position.

        Results precede their definitions and are resolved later.
        """
        where = self.tokens.where()
        name = self.tokens.local()
        return name, self._full(name) if self.tokens.at(":") else None, where

    def _resolved(self, result: tuple[str, Value | None, str]) -> Value:
        name, value, where = result
        definition = value or self._made.get(name)
        if definition is None:
            what = f"the result %{name} is not defined in this function."
            error = self.tokens.error(what)
            error.where = where
            raise error
        return definition

    def _line(self) -> Call | None:
        if self.tokens.peek.kind is not TokenKind.LOCAL:
            return self._call(())
        name = self.tokens.local()
        if self.tokens.accept("="):
            self.tokens.expect("const")
            constant = self.tokens.global_()
            self.tokens.expect(":")
            self._made[name] = Value(name, self.tensor_type(), constant, self.device())
            return None
        outputs = [self._make(name)]
        while self.tokens.accept(","):
            outputs.append(self._make())
        self.tokens.expect("=")
        return self._call(tuple(outputs))

    def _call(self, outputs: tuple[Value, ...]) -> Call:
        token = self.tokens.peek
        if token.kind is TokenKind.GLOBAL:
            op = "@" + self.tokens.global_()
        elif token.kind in (TokenKind.IDENT, TokenKind.STRING):
            op = self.word()
        else:
            raise self.expected("an operator or @function")
        made_here = {value.name for value in outputs}
        inputs = tuple(self.items("(", ")", lambda: self._use(made_here)))
        attrs = self._attrs(op, token)
        target = self.in_parentheses(self.word) if self.tokens.accept("target") else ""
        for value in outputs:
            self._made.setdefault(value.name, value)
        return Call(op, inputs, outputs, attrs, self.span(), target)

    def _attrs(self, op: str, token: Token) -> OpAttrs:
        """Parse the attributes of the operator at `token`: in braces, or none."""
        values = self.attrs({}) if self.tokens.at("{") else {}
        try:
            return attrs_from_mapping(op, values)
        except ModelError as error:
            error.where = self.tokens.where(token)
            raise

    def _use(self, made_here: set[str]) -> Value | None:
        if self.tokens.accept("none"):
            return None
        token = self.tokens.peek
        name = self.tokens.local()
        if self.tokens.at(":"):
            return self._full(name)
        value = self._made.get(name)
        if value is None:
            what = f"%{name} is used before its definition"
            if name in made_here:
                what += " (a call cannot read its own output)"
            raise self.tokens.error(f"{what}.", token)
        return value

    def _make(self, name: str | None = None) -> Value:
        """Parse a full value; without `name`, parse its name too and register it."""
        is_param = name is None
        name = self.tokens.local() if name is None else name
        value = self._full(name)
        if is_param:
            self._made.setdefault(name, value)
        return value

    def _full(self, name: str) -> Value:
        self.tokens.expect(":")
        kind = self.tensor_type()
        device = self.device()
        constant = self.tokens.global_() if self.tokens.accept("const") else None
        return Value(name, kind, constant, device)
