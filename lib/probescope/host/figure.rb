# frozen_string_literal: true

module Probescope
  module Host
    # Formats figures. nil, an unknown figure, is "-".
    module Figure
      module_function

      # part / whole, to 6 decimal places; nil where either is not known.
      def ratio(part, whole) = part && whole&.positive? ? (part.to_f / whole).round(6) : nil

      # 1234567 -> "1,234,567"
      def count(number) = number.nil? ? "-" : number.to_s.reverse.scan(/\d{1,3}/).join(",").reverse

      # 0.123 -> "12.3 %"
      def share(number) = number.nil? ? "-" : format("%.1f %%", number * 100)

      # 12.345 -> "12.3", 6704.5 -> "6,705"
      def decimal(number)
        return "-" if number.nil?

        number.round(1) < 1000 ? format("%.1f", number) : count(format("%.0f", number).to_i)
      end

      # Nanoseconds -> "950 ns", "1.23 us", "12.3 ms", "123 s"
      def time(nanoseconds)
        return "-" if nanoseconds.nil?

        scale(nanoseconds, [["ns", 1], ["us", 1e3], ["ms", 1e6], ["s", 1e9]])
      end

      # 2048 -> "2.00 KiB"
      def bytes(number)
        return "-" if number.nil?

        scale(number, [["B", 1], ["KiB", 1024], ["MiB", 1024**2], ["GiB", 1024**3]])
      end

      # Three digits, without decimals of the smallest unit, and more than three of the largest one.
      # A value that would round to four digits is given in the next unit: "1.00 ms", not "1000 us".
      def scale(number, units)
        unit, size = units.find { |_, value| (number / value.to_f).round < 1000 } || units.last
        value = number / size.to_f
        digits = size == 1 ? 0 : [2, 1, 0].find { |some| value.round(some) < 10**(3 - some) } || 0
        "#{format("%.#{digits}f", value)} #{unit}"
      end
    end
  end
end
