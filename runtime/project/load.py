"""Loader of programs: from a source through the cache or the compiler, or from an image file.

An image file is untrusted input and is verified before it runs. Must not contain: the cache
(`image_cache`), options of the command line (`options`).
"""

from __future__ import annotations

from ...ir.compile_options import DEFAULT_LLM_MODEL, DIALECTS, CompileOptions
from ...ir.scalars import scalar_or_text
from ...vm.code.image import Image, ImageError
from ..host import environment, files
from ..host.errors import UserError, reason
from ..host.paths import IMAGE_SUFFIX, IR_SUFFIX, LOOPS, ROOT, read_regular
from ..runs import program_file
from . import image_cache
from .options import Values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The compiler refuses larger sources, so they have no cache key.
_MAX_SOURCE_BYTES = 16 << 20


def load_program(path: str, values: Values, warn: Callable[[str], None]) -> Image:
    """Load the program of a source, IR text or image file. Raises UserError and CompileError.

    warn: receives the warnings of the compiler as text.
    """
    options = compile_options(values)
    if path.endswith(IMAGE_SUFFIX):
        image = load_image(path, root=ROOT)
        is_changed = options.key() != compile_options().key()
        return _compile_again(image, path, options, warn) if is_changed else image
    key = _cache_key(path, options)
    if key is not None:
        cached = image_cache.load(ROOT, key)
        if cached is not None and (path.endswith(IR_SUFFIX) or image_cache.is_current(cached)):
            return cached
    from .compilation import image_of_file

    image, has_warnings = image_of_file(path, options, warn)
    # If the file was edited during the compilation, the image matches neither version.
    if key is not None and not has_warnings and key == _cache_key(path, options):
        image_cache.store(ROOT, key, image)
    return image


def _cache_key(path: str, options: CompileOptions) -> str | None:
    """The cache key of a source; None for a source that is not cached."""
    if not files.isfile(path):  # a pipe can be read only once
        return None
    try:
        with files.open(path, "rb") as file:
            source = file.read(_MAX_SOURCE_BYTES)
    except OSError:
        return None  # the compiler reports it
    if not 0 < len(source) < _MAX_SOURCE_BYTES:
        return None
    has_flows = path.endswith(".sexp") or b"call" in source
    project_files = image_cache.project_files(ROOT, has_flows)
    return image_cache.entry_key(source, path, [options.key(), *project_files])


def load_expression(text: str, values: Values, warn: Callable[[str], None], name: str = "") -> Image:
    """Compile an expression. name: name of the program. Raises CompileError."""
    return _image_of_text(text, "<expression>", compile_options(values), warn, name)


def load_image(path: str, root: str | None = None) -> Image:
    """Load and verify an image file. Raises UserError and CompileError.

    root: project whose cache remembers verified images; None to verify always.
    """
    try:
        data = program_file.decode(read_regular(path), path)
    except OSError as error:
        raise UserError("unreadable-file", f"cannot read {path}: {reason(error)}") from None
    try:
        image = Image.from_bytes(data)
    except ImageError as error:
        raise UserError("bad-image", f"{path}: {error}", "compile it again with `llc compile`") from None
    if root is None or not image_cache.is_verified(root, data):
        from .verify import verify_image

        verify_image(image)
        if root is not None:
            image_cache.remember_verified(root, data)
    return image


def compile_options(values: Values | None = None) -> CompileOptions:
    """The compile options from a command's option values; None for the defaults.

    Both include the model of `LLC_LLM_MODEL`; `compilation` adds the project's configuration.
    """
    options = CompileOptions(
        default_model=environment.environ.get("LLC_LLM_MODEL") or DEFAULT_LLM_MODEL, folder=LOOPS
    )
    if values is None:
        return options
    return options.evolve(
        max_iterations=values.max_iterations,
        context={key: _context_value(value) for key, value in values.context},
        llm_enabled=False if values.no_llm else None,
        llm_model=values.llm_model,
        dialect=known_dialect(values.dialect),
        arguments={name: argument_value(text) for name, text in values.arguments},
        declare=values.declare,
        links=values.links,
        max_expansions=values.max_expansions,
        max_nesting=values.max_nesting,
    )


def known_dialect(name: str | None) -> str | None:
    """Return the name of a dialect unchanged. Raises UserError for an unknown name."""
    if name not in (None, *DIALECTS):
        help = f"there are {' and '.join(f'`{dialect}`' for dialect in DIALECTS)}"
        raise UserError("bad-option", f"--dialect cannot be `{name}`", help)
    return name


def _context_value(option: Any) -> Any:
    """The value of a context variable; the inverse of `context_option`."""
    return scalar_or_text(option) if isinstance(option, str) else option["value"]


def context_option(value: Any) -> Any:
    """Plain data as the value of `--context` in `Values` and in the journal.

    The result is the text that the option parses to this value, or `{"value": …}` if there is no such text.
    """
    import json

    text = value if isinstance(value, str) else json.dumps(value)
    parsed = scalar_or_text(text)
    return text if type(parsed) is type(value) and parsed == value else {"value": value}


def argument_value(text: str) -> Any:
    """The value of an argument: the parsed text if it is JSON, otherwise the text itself."""
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _compile_again(image: Image, path: str, options: CompileOptions, warn: Callable[[str], None]) -> Image:
    """Compile the source that an image contains with other options."""
    text = image.sources[0].text if image.sources else None
    if text is None:
        raise UserError(
            "no-sources",
            f"{path} was compiled without its sources, so nothing in it can be overridden",
            "compile it with the overrides instead: `llc compile LOOP --context K=V -o x.llb`",
        )
    return _image_of_text(text, image.sources[0].path, options, warn)


def _image_of_text(
    text: str, path: str, options: CompileOptions, warn: Callable[[str], None], name: str = ""
) -> Image:
    from .compilation import image_of_text

    return image_of_text(text, path, options, warn, name)
