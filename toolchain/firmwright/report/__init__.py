"""Reports about a build as an HTML page, a notebook fragment or a memory map."""
