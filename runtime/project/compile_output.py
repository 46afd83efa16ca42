"""Output of `llc compile` and `llc disasm`: the FSM, the IR, the bytecode, an image."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable

from ...ir.diagnostics import clean, suggest
from ...ir.text import print_program
from ...vm.code.disassembly import disassemble, disassemble_functions, disassemble_json
from ...vm.code.emit import emit
from ..host import files
from ..host.errors import UserError, reason, refuse_missing_folder
from ..host.paths import IMAGE_SUFFIX, IR_SUFFIX
from ..journal.journal import JournalError, write_file
from ..runs.loop_names import resolve_loop
from .compilation import compile_file, report_warnings
from .load import compile_options, load_program
from .options import Values

# Output form by suffix of the output file.
_FORM_BY_SUFFIX = {".yaml": "fsm", ".yml": "fsm", ".ir": "ir", ".llb": "image"}
_FORMS = ("ir", "bytecode", "fsm", "expanded")
# The kind of source that has a form.
_SOURCE_OF_FORM = {"fsm": "a loop", "expanded": "a flow"}


def compile_to(
    values: Values, form: str | None, output: str | None, with_sources: bool, warn: Callable[[str], None]
) -> str | None:
    """Compile a loop; return the text to print, or None if a file was written.

    Args:
        form: one of `_FORMS`; None to derive it from `output`.
        output: path of the output file; None or `-` for no file.
        with_sources: whether an image contains its sources.
        warn: receives the warnings of the compiler as text.

    Raises UserError, CompileError and JournalError.
    """
    if form is not None and form not in _FORMS:
        raise UserError("bad-option", f"--emit cannot be `{form}`", suggest(form, _FORMS, "forms"))
    path = resolve_loop(values.target)
    if path.endswith(IMAGE_SUFFIX):
        raise UserError("already-compiled", f"{path} is an image", f"to look into it: llc disasm {path}")
    to_file = output is not None and output != "-"
    if to_file and output is not None:
        form = _form_of(output, form)
        if files.exists(output) and files.samefile(output, path):
            raise UserError("overwrites-source", f"`{output}` is the loop itself", "name another file")
    compiled = compile_file(path, compile_options(values))
    report_warnings(compiled, warn)
    data: bytes
    match form:
        case "fsm":
            if compiled.loop is None:
                raise _missing_form(path, "fsm", "expanded")
            from ...frontend.loop.fsm_printer import print_fsm

            data = print_fsm(compiled.loop).encode()
        case "expanded":
            if compiled.core is None:
                raise _missing_form(path, "expanded", "fsm")
            from ...frontend.core.printer import expanded_text

            data = expanded_text(compiled.core).encode()
        case "bytecode":
            data = disassemble(emit(compiled.program)).encode()
        case "image":
            data = emit(compiled.program, sources=with_sources).to_bytes()
        case _:
            data = print_program(compiled.program).encode()
    if not to_file or output is None:
        return data.decode()
    _write_output(output, data)
    return None


def _missing_form(path: str, form: str, other: str) -> UserError:
    kind, other = ("IR text", "ir") if path.endswith(IR_SUFFIX) else (_SOURCE_OF_FORM[other], other)
    return UserError(
        "bad-option", f"{path} is {kind}, which has no form `{form}`", f"--emit {other} shows it"
    )


def _form_of(output: str, form: str | None) -> str:
    """Output form: by the suffix of the output file, otherwise `form`. Raises UserError if they differ."""
    implied = _FORM_BY_SUFFIX.get(os.path.splitext(output)[1])
    if implied is None and form is None:
        raise UserError(
            "bad-option",
            f"cannot tell the form from the file name `{output}`",
            "use the suffix .yaml (FSM), .llb (image) or .ir (IR text), or add --emit",
        )
    if implied is not None and form is not None and implied != form:
        raise UserError(
            "bad-option", f"the suffix of `{output}` means the form `{implied}`, but --emit is `{form}`"
        )
    return implied or form or "ir"


def _write_output(path: str, data: bytes) -> None:
    if files.lexists(path) and not files.isfile(path):
        try:  # a device or a pipe cannot be replaced; write to it
            with files.open(path, "wb") as file:
                file.write(data)
        except OSError as error:
            raise JournalError(f"cannot write {path}: {reason(error)}") from None
    else:
        refuse_missing_folder(path)
        write_file(path, data, durable=False)


def disassembly(values: Values, function: str | None, as_json: bool, warn: Callable[[str], None]) -> str:
    """Disassemble a program. function: only this function. Raises UserError and CompileError."""
    path = resolve_loop(values.target)
    image = load_program(path, values, warn)
    names = [code.name for code in image.functions]
    if function is not None and function not in names:
        help = suggest(function, names, "functions")
        raise UserError("unknown-function", f"{path} has no function `{clean(function, 60)}`", help)
    if as_json:
        data = disassemble_json(image)
        if function is not None:
            data["functions"] = [code for code in data["functions"] if code["name"] == function]
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    return disassemble(image) if function is None else disassemble_functions(image, [names.index(function)])
