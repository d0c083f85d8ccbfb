# frozen_string_literal: true

require "zlib"

# CRC-32 as in IEEE 802.3, which the scanners at the gate print. This is the second mistake: the
# code is short and correct, but written in Ruby.
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

# The same checksum from the standard library, in C.
class FastChecksum
  def of(data) = Zlib.crc32(data)
end
