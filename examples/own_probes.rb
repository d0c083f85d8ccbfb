# frozen_string_literal: true

# A till with probes of its own: sales, who cannot pay, how long it takes. It prints what to ask it.
#
#   ruby -Ilib examples/own_probes.rb     # in a checkout that bin/setup has been run in
#
# While nobody asks, each of them costs some nanoseconds (docs/how-to/probes-of-your-own.md).
require "probescope"

SHOP = Probescope::Provider.define("shop") do
  probe :sold, :string, :integer             # what, for how many cents
  probe :refused, :string, :integer, :string # what, the cents that were there, who
end

# Sells to some who cannot pay.
class Till
  PRICES = { "rice" => 210, "salt" => 90, "tea" => 350 }.freeze
  Refused = Class.new(StandardError)

  def sell(item, purse)
    SHOP[:sold].fire(item, pay(PRICES.fetch(item), purse))
  rescue Refused
    SHOP[:refused].fire { [item, purse, name_of_customer] } # looked up only while somebody listens
  end

  private

  def pay(cents, purse)
    sleep 0.002 # for the bank
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
