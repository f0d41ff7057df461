"""CounterFact: is a counterfactual answer preferred at all wordings, and at neighbours left alone?"""
