"""Pure functions of arrays and tables: PEAK, KLoB, ThinkEdit, CounterFact."""
