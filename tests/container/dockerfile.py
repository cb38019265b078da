"""A parser that splits a Dockerfile into stages. It knows the part of the syntax that our Dockerfile uses."""

from __future__ import annotations

import json
import re
from typing import NamedTuple


class Instruction(NamedTuple):
    word: str
    rest: str

    def exec_form(self) -> list[str]:
        """Return the arguments of the JSON form, for which no shell is started. Raise ValueError for another form."""
        return [str(word) for word in json.loads(self.rest[self.rest.index("[") :])]


class Dockerfile:
    def __init__(self, text: str) -> None:
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        joined = re.sub(r"\\\n", " ", "\n".join(lines))
        instructions = [Instruction(*line.split(None, 1)) for line in joined.splitlines() if line.strip()]
        first = next(i for i, instruction in enumerate(instructions) if instruction.word == "FROM")
        self.arguments = instructions[:first]
        self.stages: list[list[Instruction]] = []
        for instruction in instructions[first:]:
            if instruction.word == "FROM":
                self.stages.append([])
            self.stages[-1].append(instruction)

    def last(self, word: str) -> Instruction:
        """Return the instruction that counts in the image: the last of its kind in the last stage."""
        return [instruction for instruction in self.stages[-1] if instruction.word == word][-1]
