# frozen_string_literal: true

# A till with its own probes for sales and refusals. It prints commands to trace it.
#
#   ruby -Ilib examples/own_probes.rb     # in a checkout, after bin/setup
#
# Without a tracer, each probe costs some nanoseconds (docs/how-to/probes-of-your-own.md).
require "probescope"

SHOP = Probescope::Provider.define("shop") do
  probe :sold, :string, :integer             # article, price in cents
  probe :refused, :string, :integer, :string # article, cents in the purse, customer
end

# Sells to customers, of whom some cannot pay.
class Till
  PRICES = { "rice" => 210, "salt" => 90, "tea" => 350 }.freeze
  Refused = Class.new(StandardError)

  def sell(item, purse)
    SHOP[:sold].fire(item, pay(PRICES.fetch(item), purse))
  rescue Refused
    SHOP[:refused].fire { [item, purse, name_of_customer] } # called only under a tracer
  end

  private

  def pay(cents, purse)
    sleep 0.002 # waits for the bank
    raise Refused, "#{purse} of #{cents} cents" if purse < cents

    cents
  end

  def name_of_customer = "customer #{Process.pid}"
end

Probescope::Latency.trace(Till, :pay)

abort "own_probes: no probes here: #{SHOP.error}" if SHOP.error
stopped = false
%w[INT TERM].each { |signal| trap(signal) { stopped = true } }
$stdout.sync = true
trace = "sudo bpftrace -p #{Process.pid} -e"
puts <<~TEXT
  #{trace} 'usdt:*:shop:sold { @sold[str(arg0)] = count(); @cents[str(arg0)] = sum(arg1); }'
  #{trace} 'usdt:*:shop:refused { printf("%s with %d cents: %s\\n", str(arg2), arg1, str(arg0)); }'
  #{trace} 'usdt:*:latency:Till.pay { @ns = hist(arg0); @outcome[arg1] = count(); }'
TEXT
puts "sudo bpftrace -e 'usdt:#{SHOP.path}:shop:sold { @sold[pid] = count(); }'" if SHOP.path # of all tills
puts "ready"
till = Till.new
till.sell(Till::PRICES.keys.sample, rand(100..600)) until stopped
