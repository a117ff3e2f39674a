"""Ready training set-ups by name: `concertina-run --recipe NAME`."""
