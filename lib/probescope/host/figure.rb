# frozen_string_literal: true

module Probescope
  module Host
    # Figures for people. nil, which is unknown, reads "-".
    module Figure
      module_function

      # 1234567 -> "1,234,567"
      def count(number) = number.nil? ? "-" : number.to_s.reverse.scan(/\d{1,3}/).join(",").reverse

      # 0.123 -> "12.3 %"
      def share(number) = number.nil? ? "-" : format("%.1f %%", number * 100)

      def decimal(number) = number.nil? ? "-" : format("%.1f", number)

      # Nanoseconds -> "950 ns", "1.23 us", "12.3 ms", "123 s"
      def time(nanoseconds)
        return "-" if nanoseconds.nil?

        scale(nanoseconds, [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9]], 1000)
      end

      # 2048 -> "2.00 KiB"
      def bytes(number)
        return "-" if number.nil?

        scale(number, [["B", 1], ["KiB", 1024], ["MiB", 1024**2], ["GiB", 1024**3]], 1024)
      end

      # Three digits, but no fraction of the smallest unit.
      def scale(number, units, step)
        unit, size = units.find { |_, value| number < value * step } || units.last
        value = number / size.to_f
        return "#{value.round} #{unit}" if size == 1 || value >= 100

        digits = value >= 10 ? 1 : 2
        "#{format("%.#{digits}f", value)} #{unit}"
      end
    end
  end
end
