import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { hostEngine } from "../../../../src/host/engine/host-engine.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const { signal } = new AbortController();

test("an engine that accepts no new connection answers no ping, in spite of existing ones", async () => {
  const dir = mkdtempSync(join(tmpdir(), "hf-"));
  const socketPath = join(dir, "engine.sock");
  const output = JSON.stringify({ Version: "20.10.24", ApiVersion: "1.41", NCPU: 2, MemTotal: 1 });
  const server = createServer((_, answer) => void answer.end(output));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
    rmSync(dir, { recursive: true, force: true });
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  const engine = hostEngine({ socketPath, clock: new FakeClock() });
  await engine.ping(signal);
  expect(await engine.info(signal)).toMatchObject({ cpus: 2 });
  rmSync(socketPath);
  expect(await engine.info(signal)).toMatchObject({ cpus: 2 });
  await expect(engine.ping(signal)).rejects.toMatchObject({ code: "engine-unwell" });
});
