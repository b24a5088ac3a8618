"""Saving of models as saved networks: the variants to save, and what they have in common."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from interposer.core.errors import InvalidArgumentError, UnboundInputError, expect
from interposer.core.types import Dim, TensorInfo
from interposer.frontends.resizing import resized
from interposer.frontends.template import Template
from interposer.report.optimized import OptimizedNetwork
from interposer.saved.writing import NetworkToSave, VariantToSave, unplaced, write
from interposer.session.fallback import Choice
from interposer.session.limits import Limits
from interposer.session.shapes import Shapes, bound
from interposer.session.variants import Blueprint, Key

__all__ = ["Saver"]


class Saver:
    """Saves one model.

    Args:
        blueprint: the network or its template.
        choice: the backends, options and plan of the model.
        limits: what variants for other shapes may need.
        loaded: the optimized networks of the model by their keys.
    """

    def __init__(
        self, blueprint: Blueprint, choice: Choice, limits: Limits, loaded: Mapping[Key, OptimizedNetwork]
    ) -> None:
        self._blueprint, self._choice, self._limits, self._loaded = blueprint, choice, limits, loaded

    def to_save(self, shapes: Sequence[Shapes] | None = None) -> NetworkToSave:
        """Return what is saved: the loaded variants, or those for `shapes`.

        Raises:
            InvalidArgumentError: there are no variants, or shapes are not complete.
        """
        blueprint = self._blueprint
        expect(shapes, Sequence | None, "shapes must be a list of mappings from input's name to shape")
        if shapes is None:
            variants = [self._variant(key, optimized) for key, optimized in self._loaded.items()]
        else:
            variants = [self._variant_for(sizes) for sizes in shapes]
        if not variants:
            raise InvalidArgumentError(
                f"{blueprint.lacking} are not known yet; run the model once before it is saved, or give the shapes"
            )
        signatures = {key: _signature(template()) for key, template in blueprint.templates.items()}
        metadata = None if blueprint.metadata is None else blueprint.metadata()
        usual_sizes = {name: list(map(_size, shape)) for name, shape in blueprint.usual_shapes.items()}
        return NetworkToSave(
            blueprint.name,
            {name: info.with_constant(None) for name, info in blueprint.inputs.items()},
            {name: info and info.with_constant(None) for name, info in blueprint.outputs.items()},
            None if blueprint.network is None else blueprint.network.graph,
            variants,
            blueprint.needed,
            usual_sizes,
            None if metadata is None else (metadata.description, dict(metadata.entries), dict(metadata.files)),
            {key: sizes for key, sizes in signatures.items() if sizes is not None},
        )

    def _variant_for(self, shapes: Shapes) -> VariantToSave:
        """Return the variant for some shapes of the inputs; it is optimized if it is not loaded."""
        blueprint = self._blueprint
        network = blueprint.network
        expect(shapes, Mapping, "each of shapes must be a mapping from input's name to shape")
        if blueprint.needed or network is None:
            raise InvalidArgumentError(
                f"the layers depend on {blueprint.lacking}; run the model once for each shape before it is saved"
            )
        resized_shapes = resized({name: info.shape for name, info in blueprint.inputs.items()}, shapes)
        open_names = [name for name, shape in resized_shapes.items() if not shape.is_concrete]
        if open_names:
            raise InvalidArgumentError(
                f"shapes: the shape of input {open_names[0]!r} is {resized_shapes[open_names[0]]}; "
                "give all of its sizes"
            )
        key = Key(tuple(resized_shapes[name] for name in blueprint.inputs))
        if key in self._loaded:
            return self._variant(key, self._loaded[key])
        specialised_network = bound(network, shapes)
        self._limits.check(specialised_network.graph)
        return self._variant(key, self._choice.optimized(specialised_network))

    def _variant(self, key: Key, optimized: OptimizedNetwork) -> VariantToSave:
        options, plan = self._choice.arguments["options"], self._choice.used_plan
        inputs: Mapping[str, TensorInfo] = self._blueprint.inputs
        return VariantToSave(
            optimized,
            {name: list(map(int, shape)) for name, shape in zip(inputs, key.shapes, strict=True)},
            key.values,
            None if options is None else asdict(options),
            None if plan is None else plan.to_json(),
            unplaced(optimized.divided()) if self._blueprint.network is None else None,
        )

    def save(
        self,
        path: str | os.PathLike[str],
        shapes: Sequence[Shapes] | None,
        sign_key: str | os.PathLike[str] | None,
        sign_as: str | None,
    ) -> None:
        """Write the file; see `Model.save`."""
        write(path, self.to_save(shapes), sign_key, sign_as)


def _size(size: int) -> int | None:
    return None if isinstance(size, Dim) else int(size)


def _signature(template: Template) -> NetworkToSave | None:
    """Return the network that a signature calls; None if it can only be built with values of its inputs."""
    try:
        network = template.network()
    except UnboundInputError:
        return None
    return NetworkToSave(template.name, template.inputs, template.outputs, network.graph, ())
