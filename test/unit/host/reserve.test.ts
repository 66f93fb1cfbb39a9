import { expect, test } from "vitest";
import { onSmallDisk } from "../../support/small-disk.ts";

const RESERVE = new URL("../../../src/host/reserve.ts", import.meta.url).href;
const SETUP = `
  const { diskReserve, filesWithReserve } = await import(${JSON.stringify(RESERVE)});
  const { statSync, writeFileSync, rmSync, mkdirSync, symlinkSync } = await import("node:fs");
  const fill = () => {
    for (let size = 65536; size > 0; size >>= 1) {
      try { for (;;) writeFileSync(root + "/filling", Buffer.alloc(size), { flag: "a" }); } catch {}
    }
  };
  const codeOf = async (work) => { try { await work(); return "done"; } catch (error) { return error.code; } };
  const reserve = diskReserve(root);
  const sizeOf = () => statSync(root + "/reserve").size;
  mkdirSync(root + "/desired");
  mkdirSync(root + "/other");
`;

test("a full disk still takes what the reserve is for, and the reserve is made whole once there is room", async () => {
  const found = await onSmallDisk(`${SETUP}
    const used = [];
    const kept = filesWithReserve(files, reserve, ["/desired"], (error) => used.push(error.code));
    reserve.refill();
    const whole = sizeOf();
    fill();
    const other = await codeOf(() => kept.writeAtomic("/other/a", "x".repeat(5000), 0o600));
    const desired = await codeOf(() => kept.writeAtomic("/desired/a", "x".repeat(1000), 0o600));
    const while_ = [await codeOf(() => reserve.refill()), sizeOf() < whole];
    const large = await codeOf(() => kept.writeAtomic("/desired/b", "x".repeat(100000), 0o600));
    rmSync(root + "/filling");
    reserve.refill();
    return { whole, other, desired, while_, large, used, after: sizeOf() };
  `);
  expect(found).toEqual({
    whole: 16_384,
    other: "disk-full",
    desired: "done",
    while_: ["disk-full", true],
    large: "disk-full",
    used: ["disk-full"],
    after: 16_384,
  });
});

test("a reserve that is a link, or on a read-only disk, is none", async () => {
  const found = await onSmallDisk(`${SETUP}
    writeFileSync(root + "/other/a", "x".repeat(9000));
    symlinkSync(root + "/other/a", root + "/reserve");
    const link = [reserve.release(4096), await codeOf(() => reserve.refill()), statSync(root + "/other/a").size];
    rmSync(root + "/reserve");
    makeReadOnly();
    return [...link, reserve.release(4096), await codeOf(() => reserve.refill())];
  `);
  expect(found).toEqual([false, "file-failed", 9000, false, "read-only"]);
});
