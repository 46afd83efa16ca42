"""Programs to run: from a loop's file through the cache or the compiler, or from an image.

An image is untrusted input and is verified before anything of it runs. The compiler is imported
only where there is something to compile.
"""

from __future__ import annotations

from ..host import environment, files
from ..host.errors import UserError, reason
from ..host.paths import IMAGE_SUFFIX, LOOPS, ROOT
from ..runs import program_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...frontend.compile import Compiled, Overrides
    from ...vm.code.image import Image
    from .configuration import Configuration
    from .options import Values

FLOW_SUFFIX = ".sexp"
# A source larger than this is refused by the compiler; it is not looked up in the cache.
_MOST_SOURCE = 16 << 20


def load_program(path: str, values: Values, warn: Callable[[str], None]) -> Image:
    """The image for a loop's file or an image's. Raises UserError and CompileError.

    What the compiler warns of goes to `warn`, as text.
    """
    if path.endswith(IMAGE_SUFFIX):
        image = load_image(path, root=ROOT)
        return _compile_anew(image, path, values, warn) if _overridden(values) else image
    from . import image_cache

    key = None
    around: dict[str, str] = {}
    source = b""
    if files.isfile(path):  # what is no file, such as a pipe, can be read only once
        try:
            with files.open(path, "rb") as file:
                source = file.read(_MOST_SOURCE)
        except OSError:
            source = b""  # the compiler says what is wrong with it
    if 0 < len(source) < _MOST_SOURCE:
        around = _around(path, source)
        key = image_cache.entry_key(source, path, [*_settings(values), *around.values()])
        image_or_none = image_cache.load(ROOT, key)
        if image_or_none is not None and image_cache.is_current(image_or_none):
            return image_or_none
    from ...frontend.compile import compile_file

    image, has_warnings = _emit(compile_file(path, overrides(values)), warn)
    if key is not None and not has_warnings and around == _around(path, source):
        image_cache.store(ROOT, key, image)
    return image


def _around(path: str, source: bytes) -> dict[str, str]:
    """The files that say what the program's flows may call, which are part of what its image depends on."""
    from . import image_cache

    has_flows = path.endswith(FLOW_SUFFIX) or b"call" in source
    return image_cache.declared_files(LOOPS) if has_flows else {}


def load_expression(text: str, values: Values, warn: Callable[[str], None], name: str = "") -> Image:
    """The image for an expression given by itself, called `name` if that is given. Raises CompileError."""
    from ...frontend.compile import EXPRESSION, compile_text

    compiled = compile_text(text, EXPRESSION, overrides(values))
    if name:
        import attrs

        compiled = attrs.evolve(compiled, program=attrs.evolve(compiled.program, name=name))
    return _emit(compiled, warn)[0]


def load_image(
    path: str, advice: str = "compile it again with `llc compile`", root: str | None = None
) -> Image:
    """A verified image from a file, which is untrusted input. Raises UserError and CompileError.

    advice: what is said where it is damaged. root: where the cache is that knows which images are sound;
    None: it is verified anew.
    """
    from ...vm.code.image import Image, ImageError
    from . import image_cache

    try:
        with files.open(path, "rb") as file:
            data = program_file.whole(file.read(), path)
    except OSError as error:
        raise UserError("unreadable-file", f"cannot read {path}: {reason(error)}") from None
    try:
        image = Image.from_bytes(data)
    except ImageError as error:
        raise UserError("bad-image", f"{path}: {error}", advice) from None
    if root is None or not image_cache.is_sound(root, data):
        verify_image(image)
        if root is not None:
            image_cache.remember_sound(root, data)
    return image


def verify_image(image: Image) -> None:
    """Refuse, with a CompileError, an image that is not what the compiler could have made."""
    from ...ir.diagnostics import CompileError
    from ...ir.gc_pause import CollectorRests
    from ...ir.verify import verify
    from ...vm.code.lift import lift
    from ...vm.code.verify import verify_image as verify_code

    with CollectorRests():
        found = [diagnostic for diagnostic in verify_code(image) if diagnostic.is_error]
        if not found:
            found = [diagnostic for diagnostic in verify(lift(image, places=False)) if diagnostic.is_error]
            if found:  # only now it is of interest where that stands
                found = [diagnostic for diagnostic in verify(lift(image)) if diagnostic.is_error] or found
    if found:
        raise CompileError(found)


def overrides(values: Values) -> Overrides:
    """What the options of a command set over what the loop says."""
    import attrs

    return attrs.evolve(
        compile_options(),
        max_iterations=values.max_iterations,
        context=tuple(values.context),
        llm_enabled=False if values.no_llm else None,
        llm_model=values.llm_model,
        arguments=tuple(values.arguments),
        declare=tuple(values.declare),
        max_expansions=values.max_expansions,
        max_nesting=values.max_nesting,
    )


def compile_options() -> Overrides:
    """What surrounds a program: the project, and the model of `LLC_LLM_MODEL`."""
    from ...frontend.compile import DEFAULT_LLM_MODEL, Overrides

    model = environment.environ.get("LLC_LLM_MODEL") or DEFAULT_LLM_MODEL
    return Overrides(default_model=model, folder=LOOPS, project=Project())


class Project:
    """What the configuration says that a loop may name; read when it is first asked."""

    def __init__(self) -> None:
        self._known: Configuration | None = None

    @property
    def _configuration(self) -> Configuration | None:
        """None where it cannot be read, which is told where it is used."""
        from ...ir.diagnostics import CompileError
        from . import configuration

        if self._known is None:
            try:
                self._known = configuration.load(ROOT)
            except CompileError:
                return None
        return self._known

    def agents(self) -> Sequence[str] | None:
        from ..effects.agent import KNOWN

        found = self._configuration
        return None if found is None else (*KNOWN, *found.agents)

    def is_priced(self, model: str) -> bool:
        from ..models import selection
        from ..models.prices import Prices

        found = self._configuration
        if found is None:
            return True
        chosen = selection.choose(model, found.models)
        return Prices().row(chosen.name, chosen.price) is not None


def _overridden(values: Values) -> bool:
    return bool(
        values.max_iterations
        or values.context
        or values.arguments
        or values.declare
        or values.no_llm
        or values.llm_model
    )


def _settings(values: Values) -> list[str]:
    """All that an image depends on but its source, as texts."""
    context = [f"{key}={text}" for key, text in values.context]
    context += [f"--arg {key}={text}" for key, text in values.arguments]
    context += [f"--declare {text}" for text in values.declare]
    model = environment.environ.get("LLC_LLM_MODEL") or ""
    return [str(values.max_iterations), str(values.no_llm), str(values.llm_model), model, *context]


def _compile_anew(image: Image, path: str, values: Values, warn: Callable[[str], None]) -> Image:
    text = image.sources[0].text if image.sources else None
    if text is None:
        raise UserError(
            "no-sources",
            f"{path} was compiled without its sources, so nothing in it can be overridden",
            "compile it with the overrides instead: `llc compile LOOP --context K=V -o x.llb`",
        )
    from ...frontend.compile import compile_text

    return _emit(compile_text(text, image.sources[0].path, overrides(values)), warn)[0]


def _emit(compiled: Compiled, warn: Callable[[str], None]) -> tuple[Image, bool]:
    from ...vm.code.emit import emit

    warnings = [diagnostic for diagnostic in compiled.diagnostics if not diagnostic.is_error]
    if warnings:
        from ...ir.diagnostics import render_all

        warn(render_all(warnings, compiled.sources))
    return emit(compiled.program), bool(warnings)
