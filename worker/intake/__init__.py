"""From a delivered payload to signals: parse, classify, resolve, judge, route, fold, report."""
