"""Reports: charts and the page, made from finished results."""
