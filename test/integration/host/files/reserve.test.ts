import { expect, test } from "vitest";
import { onSmallDisk } from "../../../support/machine/small-disk.ts";

const RESERVE = new URL("../../../../src/host/files/reserve.ts", import.meta.url).href;
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

test("a full disk still accepts what the reserve is for, and the reserve is restored once there is room", async () => {
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

test("a link, a pipe or a directory in the place of the reserve is set aside", async () => {
  const found = await onSmallDisk(`${SETUP}
    const { execFileSync } = await import("node:child_process");
    writeFileSync(root + "/other/a", "x".repeat(9000));
    const found = [];
    for (const put of [
      (path) => symlinkSync(root + "/other/a", path),
      (path) => execFileSync("mkfifo", [path]),
      (path) => mkdirSync(path),
    ]) {
      rmSync(root + "/reserve", { force: true });
      rmSync(root + "/reserve.damaged", { force: true });
      put(root + "/reserve");
      found.push([reserve.release(4096), await codeOf(() => reserve.refill()), sizeOf(), reserve.release(4096)]);
    }
    return [...found, statSync(root + "/other/a").size];
  `);
  const whole = [false, "done", 16_384, true];
  expect(found).toEqual([whole, whole, whole, 9000]);
});

test("a read-only disk has no reserve", async () => {
  const found = await onSmallDisk(`${SETUP}
    makeReadOnly();
    return [reserve.release(4096), await codeOf(() => reserve.refill())];
  `);
  expect(found).toEqual([false, "read-only"]);
});
