import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { hostFiles, type Files } from "../../../../../src/host/files/files.ts";
import { NetworkLedger } from "../../../../../src/host/network/state/ledger.ts";
import { hostReader, type Reader } from "../../../../../src/host/reader.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const address = { link: "enp65s0f1np01", address: "192.0.2.1/24" };
const resolver = { kind: "file", text: "nameserver 192.0.2.1\n" } as const;

function ledger(dir: string, boot = "one", files: Files = hostFiles()): NetworkLedger {
  const reader: Reader = { ...hostReader(), read: () => `${boot}\n` };
  return new NetworkLedger(files, reader, join(dir, "state"));
}

describe("the ledger", () => {
  it("starts empty, without a write", async () => {
    const dir = tempDir();
    expect(await ledger(dir).content()).toStrictEqual({ isUsed: false, boot: "one", addresses: [], fixed: [] });
    await ledger(dir).change({ addresses: [] });
    expect(await hostFiles().list(dir)).toStrictEqual([]);
  });

  it("keeps its entries", async () => {
    const dir = tempDir();
    await ledger(dir).change({ isUsed: true, addresses: [address] });
    await ledger(dir).change({ resolver });
    expect(await ledger(dir).content()).toStrictEqual({
      isUsed: true,
      boot: "one",
      addresses: [address],
      fixed: [],
      resolver,
    });
  });

  it("loses nothing of concurrent entries", async () => {
    const dir = tempDir();
    const one = ledger(dir);
    await Promise.all([one.change({ isUsed: true }), one.change({ addresses: [address] }), one.change({ resolver })]);
    expect(await ledger(dir).content()).toMatchObject({ isUsed: true, addresses: [address], resolver });
  });

  it("drops what a reboot removed", async () => {
    const dir = tempDir();
    await ledger(dir).change({
      isUsed: true,
      addresses: [address],
      fixed: [{ link: "a", speedMbps: 10, duplex: "half" }],
    });
    await ledger(dir).change({ resolver });
    const after = { isUsed: true, boot: "two", addresses: [], fixed: [] };
    expect(await ledger(dir, "two").content()).toStrictEqual({ ...after, resolver });
    await ledger(dir).change({ resolver: { kind: "resolved", link: "eth0", servers: [] } });
    expect(await ledger(dir, "two").content()).toStrictEqual(after);
  });

  it("assumes that entries are ours when it is lost", async () => {
    const dir = tempDir();
    await ledger(dir).change({ isUsed: true });
    writeFileSync(join(dir, "state", "network.json"), "{");
    expect(await ledger(dir).content()).toMatchObject({ isUsed: true, addresses: [] });
  });

  it("stays unchanged when the disk refuses", async () => {
    const dir = tempDir();
    const full = { ...hostFiles(), writeAtomic: () => Promise.reject(new Error("no space")) };
    const one = ledger(dir, "one", full);
    await expect(one.change({ isUsed: true })).rejects.toThrow("no space");
    expect(await one.content()).toMatchObject({ isUsed: false });
  });
});
