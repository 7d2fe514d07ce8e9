"""Protocol-buffer messages and gRPC services from small tables, without a compiler step.

A message is a table of its fields: name -> (number, type).  Types: `string`, `int64`, `bool`,
a message's name; `[type]` for a repeated one and `{}` for a map of strings.  Only the fields that
are used need to stand there: the format skips what it does not know.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Fields = dict[str, tuple[int, str]]

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "int64": _Field.TYPE_INT64,
    "int32": _Field.TYPE_INT32,
    "bool": _Field.TYPE_BOOL,
}


def message_classes(package: str, tables: dict[str, Fields]) -> dict[str, Any]:
    """Return the message classes of these tables, by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in tables.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            if kind == "{}":
                _add_map(message, package, field, number)
            else:
                _add_field(message, package, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in tables
    }


def _add_field(message: Any, package: str, name: str, number: int, kind: str) -> None:
    repeated = kind.startswith("[")
    kind = kind.strip("[]")
    field = message.field.add(name=name, number=number)
    field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"


def _add_map(message: Any, package: str, name: str, number: int) -> None:
    entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
    entry = message.nested_type.add(name=entry_name)
    entry.options.map_entry = True
    for number_inside, key in ((1, "key"), (2, "value")):
        entry.field.add(
            name=key, number=number_inside, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL
        )
    field = message.field.add(name=name, number=number, type=_Field.TYPE_MESSAGE)
    field.label = _Field.LABEL_REPEATED
    field.type_name = f".{package}.{message.name}.{entry_name}"
