import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { startOverlayProcess } from "../../../src/host/overlay-process.ts";
import { tempDir } from "../../support/temp-dir.ts";

const own = { argv: process.argv, execArgv: process.execArgv };

test("an overlay is started as the agent was, but for how few threads V8 has there", async () => {
  const dir = tempDir();
  const node = join(dir, "node");
  writeFileSync(node, '#!/bin/sh\necho "$@"\n', { mode: 0o755 });
  onTestFinished(() => void Object.assign(process, own));
  Object.assign(process, { argv: [node, "/x/holdfast.mjs"], execArgv: ["--v8-pool-size=1", "--disable-sigusr1"] });
  await startOverlayProcess(dir, "/run/x").ended;
  expect(readFileSync(join(dir, "overlay.log"), "utf8")).toBe(
    `--disable-sigusr1 /x/holdfast.mjs overlay --state ${dir} --run /run/x\n`,
  );
});
