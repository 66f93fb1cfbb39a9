import { chmodSync, closeSync, mkdirSync, openSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { hostImageInfo } from "../../../../src/host/data-store/image-info.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const never = new AbortController().signal;

/** A directory with a `qemu-img` of these lines, and the descriptor of an image that only its owner may read. */
function stage(lines: string) {
  const dir = tempDir();
  chmodSync(dir, 0o755);
  mkdirSync(join(dir, "bin"), { mode: 0o755 });
  const tool = join(dir, "bin", "qemu-img");
  writeFileSync(tool, `#!/bin/sh\n${lines}\n`);
  chmodSync(tool, 0o755);
  const image = join(dir, "disk.img");
  writeFileSync(image, "four", { mode: 0o600 });
  const fd = openSync(image, "r");
  onTestFinished(() => closeSync(fd));
  return {
    fd,
    image,
    info: (signal = never) => hostImageInfo({ isManaged: false, searchPath: join(dir, "bin") })(fd, signal),
  };
}

test("takes format and virtual size from the tool, which has the image as its standard input", async () => {
  const { info, image } = stage(
    `[ "$(cat "$5")" = four ] || exit 1\necho '{"virtual-size": 1048576, "filename": "x", "format": "qcow2", "actual-size": 4}'`,
  );
  expect(await info()).toEqual({ bytes: 4, format: "qcow2", virtualBytes: 1_048_576 });
  expect(statSync(image).mode & 0o777).toBe(0o600);
});

test("nobody else may read the image meanwhile, and its group and mode are unchanged afterwards", async () => {
  const { info, image } = stage(`echo "{\\"virtual-size\\": 1, \\"format\\": \\"$(stat -Lc %a,%g "$5") $(id -g)\\"}"`);
  const [mode, group, own] = (await info()).format?.split(/[, ]/) ?? [];
  if (process.geteuid?.() === 0) expect([mode, group]).toEqual(["640", own]);
  else expect(mode).toBe("600");
  const after = statSync(image);
  expect([after.mode & 0o777, after.gid]).toEqual([0o600, process.getegid?.()]);
});

test("the tool has no privileges", async () => {
  const { info } = stage(
    `read_of() { grep "^$1:" /proc/self/status | tr -s '\\t ' ' '; }
format="$(id -u) $(read_of CapEff) $(read_of CapBnd) $(read_of NoNewPrivs)"
echo "{\\"virtual-size\\": 1, \\"format\\": \\"$(echo "$format" | tr -d ' :' | sed 's/0\\{16\\}/-/g')\\"}"`,
  );
  const isRoot = process.geteuid?.() === 0;
  expect((await info()).format).toBe(isRoot ? "65534CapEff-CapBnd-NoNewPrivs1" : (await info()).format);
});

test.each([
  ["fails", 'echo \'{"virtual-size": 1, "format": "raw"}\'; exit 1'],
  ["says something else", "echo '{\"format\": 7}'"],
  ["says nothing that can be read", "echo hello"],
  ["writes without end", "exec yes"],
])("a tool that %s leaves the size", async (_, lines) => {
  expect(await stage(lines).info()).toEqual({ bytes: 4 });
});

test("ends a hanging tool with its caller", async () => {
  const { info } = stage("exec sleep 1000");
  expect(await info(AbortSignal.timeout(200))).toEqual({ bytes: 4 });
});

test("without the tool only the size is known", async () => {
  const { fd } = stage("exit 1");
  expect(await hostImageInfo({ isManaged: false, searchPath: "/nowhere" })(fd, never)).toEqual({ bytes: 4 });
});
