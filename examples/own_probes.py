"""A till with its own probes: examples/own_probes.rb in Python. It prints commands to trace it.

    PYTHONPATH=python python3 examples/own_probes.py   # in a checkout, after bin/setup

Without a tracer, each probe costs some nanoseconds (docs/how-to/probes-of-your-own.md).
"""

import os
import random
import signal
import sys
import time

import probescope

shop = probescope.Provider("shop")
sold = shop.probe("sold", str, int)  # article, price in cents
refused = shop.probe("refused", str, int, str)  # article, cents in the purse, customer


class Refused(Exception):
    pass


class Till:
    """Sells to customers, of whom some cannot pay."""

    PRICES = {"rice": 210, "salt": 90, "tea": 350}

    def sell(self, item, purse):
        try:
            sold.fire(item, self.pay(self.PRICES[item], purse))
        except Refused:
            refused(lambda: (item, purse, self.name_of_customer()))  # called only under a tracer

    @probescope.latency
    def pay(self, cents, purse):
        time.sleep(0.002)  # waits for the bank
        if purse < cents:
            raise Refused(f"{purse} of {cents} cents")
        return cents

    def name_of_customer(self):
        return f"customer {os.getpid()}"


def main():
    if not shop.load():
        sys.exit(f"own_probes: no probes here: {shop.error}")
    stopped = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.append(True))
    trace = f"sudo bpftrace -p {os.getpid()} -e"
    print(
        rf"""{trace} 'usdt:*:shop:sold {{ @sold[str(arg0)] = count(); @cents[str(arg0)] = sum(arg1); }}'
{trace} 'usdt:*:shop:refused {{ printf("%s with %d cents: %s\n", str(arg2), arg1, str(arg0)); }}'
{trace} 'usdt:*:latency:Till.pay {{ @ns = hist(arg0); @outcome[arg1] = count(); }}'"""
    )
    if shop.path:
        print(f"sudo bpftrace -e 'usdt:{shop.path}:shop:sold {{ @sold[pid] = count(); }}'")  # of all tills
    print("ready", flush=True)
    till = Till()
    while not stopped:
        till.sell(random.choice(list(till.PRICES)), random.randint(100, 600))


if __name__ == "__main__":
    main()
