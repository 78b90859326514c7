"""The study: a folder for each question, with all that belongs to it alone.

`<name>/cells.py` holds the question, its measurements and its tables. It loads neither torch nor
matplotlib. It defines

- `cells(plan, options)`: the grid of measurements, in table order;
- `TABLES`: the CSVs it writes, name → columns;
- `tables(records)`: their rows, derived from the records and nothing else;

and, where they differ from the defaults,

- `MEANINGS`: what the columns of its own hold and mean, in the form of `harness/columns.txt`;
- `RANK`: its place in the running order of `--experiment all`; without one it runs last;
- `ON_REQUEST = True`: it runs only by name, as it is not of the paper;
- `second_round(plan, options, records)`: further cells, chosen by the records of the first;
- `expected_second_round(plan, options)`: cells that take as long, for the estimate of the time;
- `QUICK = True`: `--quick` runs it where no experiment is named;
- `ALSO_READS`: experiments whose records `tables` gets after its own;
- `sentence(rows)`: the comparison that ends a run, from the measured rows of the tables, or an
  empty text (`sentences`);
- `SENTENCE_RANK`: of a run's experiments the lowest one's sentence is printed; those without one
  follow in the order of the run;
- `TIMED`: what `measure.py` times beside itself and `harness.protocols.registry.TIMED`.

`<name>/measure.py` measures its cells, where no other question uses their protocol: a function for
each, called like it. `<name>/figure*.py` draw its figures. `conf/experiment/<name>.yaml` has its
options. The modules beside the folders are what several questions share.
"""
