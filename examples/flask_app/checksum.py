import zlib


def _table():
    for remainder in range(256):
        for _ in range(8):
            remainder = 0xEDB88320 ^ (remainder >> 1) if remainder & 1 else remainder >> 1
        yield remainder


class Checksum:
    """CRC-32 as in IEEE 802.3, which the scanners at the gate print. This is the third mistake: the
    code is short and correct, but written in Python."""

    TABLE = tuple(_table())

    def of(self, data):
        crc = 0xFFFFFFFF
        for byte in data:
            crc = self.TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
        return crc ^ 0xFFFFFFFF


class FastChecksum:
    """The same checksum from the standard library, in C."""

    def of(self, data):
        return zlib.crc32(data)
