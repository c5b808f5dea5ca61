import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { SandboxError } from "#core/errors.ts";
import { type ImageBytes, inspectImage } from "./header.ts";

const MIB = 1024 * 1024;

/** A file in memory; more than a header's worth read at once is a fault of the reader. */
function bytesOf(buffer: Buffer, sizeBytes = buffer.length): ImageBytes {
  return {
    sizeBytes,
    read(offset, length) {
      assert.ok(length <= 64 * 1024, `${length} bytes at once`);
      return Buffer.from(buffer.subarray(offset, offset + length));
    },
  };
}

interface Qcow2 {
  readonly version?: number;
  readonly backing?: bigint;
  readonly clusterBits?: number;
  readonly size?: bigint;
  readonly crypt?: number;
  readonly features?: bigint;
  readonly headerBytes?: number;
  /** Behind the header: type and text of each. */
  readonly extensions?: readonly (readonly [type: number, text: string])[];
}

function qcow2(parts: Qcow2 = {}): Buffer {
  const { version = 3, backing = 0n, clusterBits = 16, size = BigInt(64 * MIB), crypt = 0, features = 0n } = parts;
  const image = Buffer.alloc(4 * 65_536);
  image.writeUInt32BE(0x514649fb, 0);
  image.writeUInt32BE(version, 4);
  image.writeBigUInt64BE(backing, 8);
  image.writeUInt32BE(backing === 0n ? 0 : 12, 16);
  image.writeUInt32BE(clusterBits, 20);
  image.writeBigUInt64BE(size, 24);
  image.writeUInt32BE(crypt, 32);
  let at = 72;
  if (version === 3) {
    image.writeBigUInt64BE(features, 72);
    image.writeUInt32BE(parts.headerBytes ?? 104, 100);
    at = 104;
  }
  for (const [type, text] of parts.extensions ?? []) {
    image.writeUInt32BE(type, at);
    image.writeUInt32BE(text.length, at + 4);
    image.write(text, at + 8, "latin1");
    at += 8 + Math.ceil(text.length / 8) * 8;
  }
  return image;
}

function vmdk(text = "", sectors = 2048n): Buffer {
  const image = Buffer.alloc(64 * 1024);
  image.write("KDMV", 0, "latin1");
  image.writeUInt32LE(1, 4);
  image.writeBigUInt64LE(sectors, 12);
  image.writeBigUInt64LE(1n, 28);
  image.writeBigUInt64LE(20n, 36);
  image.write(text, 512, "latin1");
  return image;
}

function raw(word = "", at = 0): Buffer {
  const image = Buffer.alloc(MIB);
  image.writeUInt16LE(0xaa55, 510);
  image.write(word, at, "latin1");
  return image;
}

const refuses = (image: Buffer, message: RegExp, kind = "InvalidArgument") =>
  assert.throws(
    () => inspectImage(bytesOf(image)),
    (error: unknown) => {
      assert.ok(error instanceof SandboxError, String(error));
      assert.match(error.message, message);
      return error.kind === kind;
    },
  );

describe("the image of a disk", () => {
  test("is taken in each form that is whole by itself, with the size of its disk", () => {
    assert.deepEqual(inspectImage(bytesOf(qcow2())), { format: "qcow2", virtualBytes: 64 * MIB });
    assert.deepEqual(inspectImage(bytesOf(qcow2({ version: 2 }))), { format: "qcow2", virtualBytes: 64 * MIB });
    assert.deepEqual(inspectImage(bytesOf(qcow2({ features: 1n | 8n | 16n }))).format, "qcow2");
    assert.deepEqual(inspectImage(bytesOf(vmdk("parentCID=ffffffff\n"))), { format: "vmdk", virtualBytes: MIB });
    assert.deepEqual(inspectImage(bytesOf(raw())), { format: "raw", virtualBytes: MIB });
    assert.deepEqual(inspectImage(bytesOf(raw("CD001", 32_769))), { format: "iso", virtualBytes: MIB });
  });

  test("with a backing file that points at a host path is refused, wherever it names it", () => {
    refuses(qcow2({ backing: 4096n }), /backing file/);
    refuses(qcow2({ version: 2, backing: 4096n }), /backing file/);
    refuses(
      qcow2({
        extensions: [
          [0x6803f857, "features"],
          [0xe2792aca, "raw"],
        ],
      }),
      /backing file/,
    );
    refuses(vmdk('parentFileNameHint="/etc/shadow"'), /backing file/);
    refuses(vmdk("parentCID=1234abcd\n"), /backing file/);
  });

  test("whose data lies in other files is refused", () => {
    refuses(qcow2({ features: 4n }), /another file/);
    refuses(qcow2({ extensions: [[0x44415441, "/etc/shadow"]] }), /another file/);
    refuses(vmdk("", 0n), /other files/);
    refuses(raw("# Disk DescriptorFile"), /other files/);
  });

  test("that is encrypted is refused", () => {
    refuses(qcow2({ crypt: 2 }), /encrypted/);
    refuses(qcow2({ extensions: [[0x0537be77, "x".repeat(16)]] }), /encrypted/);
    refuses(raw("LUKS\xba\xbe"), /encrypted/);
    refuses(vmdk("encryption.keySafe = x"), /encrypted/);
  });

  test("that is none, too small, too large, damaged or of another kind is refused by name", () => {
    refuses(Buffer.from("hello"), /too small/);
    refuses(Buffer.alloc(MIB), /no image/);
    refuses(Buffer.concat([Buffer.from("1f8b0800", "hex"), Buffer.alloc(MIB)]), /no image/);
    for (const [word, at] of [
      ["vhdxfile", 0],
      ["conectix", 0],
      ["QED\0", 0],
      ["\x7f\x10\xda\xbe", 64],
    ] as const) {
      refuses(raw(word, at), /not taken/);
    }
    refuses(qcow2({ size: 0n }), /too small/);
    refuses(qcow2({ size: 2n ** 63n }), /more than/, "TooLarge");
    refuses(qcow2({ clusterBits: 40 }), /damaged/);
    refuses(qcow2({ version: 7 }), /version 7/);
    refuses(qcow2({ features: 1n << 40n }), /not known/);
    refuses(qcow2({ features: 2n }), /damaged/);
    refuses(qcow2({ headerBytes: 105 }), /header of 105/);
    refuses(qcow2({ extensions: Array.from({ length: 70 }, () => [7, "x"] as const) }), /do not end/);
    refuses(qcow2().subarray(0, 512).fill(0, 8), /damaged/);
  });

  test("may be any bytes: what is not taken is refused, in bounded reads", () => {
    const whole = [qcow2(), vmdk("parentCID=ffffffff\n"), raw("CD001", 32_769)];
    const changes = fc.array(fc.tuple(fc.nat(1023), fc.nat(255)), { maxLength: 24 });
    fc.assert(
      fc.property(fc.constantFrom(...whole), changes, fc.nat(70_000), (image, edits, length) => {
        const changed = Buffer.from(image.subarray(0, Math.max(length, 1)));
        for (const [at, byte] of edits) changed[at] = byte;
        try {
          const { virtualBytes } = inspectImage(bytesOf(changed));
          assert.ok(virtualBytes >= 512 && virtualBytes <= 2 ** 36);
        } catch (error) {
          assert.ok(error instanceof SandboxError, String(error));
        }
      }),
      { numRuns: 2_000 },
    );
  });
});
