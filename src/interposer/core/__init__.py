"""What every other package knows: types, shapes, operator schemas, errors, settings, files and the cache folder."""
