# frozen_string_literal: true

require "zlib"

# CRC-32 as in IEEE 802.3, which the scanners at the gate print. This is the second mistake: it is
# short and correct, and written in Ruby.
class Checksum
  TABLE = Array.new(256) do |n|
    8.times { n = n.odd? ? 0xedb88320 ^ (n >> 1) : n >> 1 }
    n
  end.freeze

  def of(data)
    crc = 0xffffffff
    data.each_byte { |byte| crc = TABLE[(crc ^ byte) & 0xff] ^ (crc >> 8) }
    crc ^ 0xffffffff
  end
end

# The same figure from the standard library, which is C.
class FastChecksum
  def of(data) = Zlib.crc32(data)
end
