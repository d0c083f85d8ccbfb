# frozen_string_literal: true

# For spec/gem_spec.rb: an application with its own probe that uses only what every libstapsdt
# has.
$stdout.sync = true
SHOP = Probescope::Provider.new("shop")
CHECKOUT = SHOP.probe(:checkout, :string, :integer, :uint8)
said = [CHECKOUT.fire("basket", 1, 1), CHECKOUT.enabled?, SHOP.load, SHOP.load]
begin
  SHOP.probe(:late)
rescue Probescope::Error
  said += Array.new(3) { [SHOP.unload, CHECKOUT.fire("basket", 1, 1), SHOP.load] }
end
puts said.join(" ")
Probescope::Provider.new("never").probe(:loaded)
GC.start
puts "library #{Probescope::Native::PROVIDERS} #{Probescope::Native::MOST_ARGUMENTS}"
sleep 0.002 until CHECKOUT.fire { ["basket", -3, 255] }
sleep 0.002 while CHECKOUT.fire("basket", -3, 255)
puts "unloaded #{SHOP.unload} #{CHECKOUT.enabled?} #{CHECKOUT.fire("basket", 1, 1)}"
