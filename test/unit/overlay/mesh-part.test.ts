import { readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { hostFiles } from "../../../src/host/files/files.ts";
import { MeshPart } from "../../../src/overlay/mesh-part.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { planeRig } from "../../support/overlay/overlay-rig.ts";
import { tempDir } from "../../support/temp-dir.ts";

/** Modules that a module loads before it runs: without types and dynamic imports. */
function neededBy(path: string): readonly string[] {
  const text = readFileSync(path, "utf8");
  return [...text.matchAll(/^(?:import|export) (?!type )[^;]*?from "([^"]+)";/gm)].map(([, from]) => from ?? "");
}

test("an overlay without other nodes loads neither TLS nor HTTP/2", () => {
  const reached = new Set<string>();
  const builtins = new Map<string, string>();
  const visit = (path: string): void => {
    if (reached.has(path)) return;
    reached.add(path);
    for (const from of neededBy(path)) {
      if (from.startsWith("node:")) builtins.set(from, path);
      else if (from.startsWith(".")) visit(normalize(join(dirname(path), from)));
    }
  };
  visit("src/overlay/main.ts");
  expect(reached).toContain("src/overlay/mesh-part.ts");
  expect(reached).not.toContain("src/overlay/mesh/mesh.ts");
  expect([...builtins].filter(([name]) => /^node:(http2?|https|tls)$/.test(name))).toEqual([]);
});

/** The part over a plane of its own, on a fake clock. */
function aPart(makeRoom: () => void) {
  const clock = new FakeClock();
  const part = new MeshPart({
    plane: planeRig().plane,
    stateDir: tempDir(),
    clock,
    files: hostFiles(),
    log: pino({ level: "silent" }),
    askName: () => Promise.reject(new Error("nobody is asked")),
    localAddresses: () => [],
    onFault: () => undefined,
    onFirstFlow: () => undefined,
    onMesh: () => undefined,
    makeRoom,
  });
  onTestFinished(() => part.close());
  return { clock, part };
}

test("frees memory with a mesh every minute, and not without", async () => {
  let made = 0;
  const { clock, part } = aPart(() => (made += 1));
  await part.apply(undefined);
  await clock.advance(300_000);
  expect(made).toBe(0);
  await part.apply({ self: "00000000-0000-4000-8000-000000000001", peers: [], paths: [], grants: [], routes: [] });
  expect(made).toBe(1);
  await clock.advance(180_000);
  expect(made).toBe(4);
  part.close();
  await clock.advance(180_000);
  expect(made).toBe(4);
});
