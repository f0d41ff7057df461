"""One module per benchmark: records as frozen dataclasses, fetched with a checksum."""
