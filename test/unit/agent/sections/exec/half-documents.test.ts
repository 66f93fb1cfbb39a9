import { expect, test } from "vitest";
import type { ExecActual, ExecDesired } from "../../../../../src/agent/sections/exec/actual.ts";
import { planExec } from "../../../../../src/agent/sections/exec/plan.ts";
import { readExec } from "../../../../../src/protocol/sections/exec/read.ts";
import { placement } from "../../../../support/containers/container-spec.ts";
import { idOf, itemOf, modelStage } from "../../../../support/reconcile/model-stage.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const NOBODY: ReadonlySet<string> = new Set();

function volumeKinds(raw: unknown, desired: Partial<ExecDesired> = {}): readonly string[] {
  const { nonce: _nonce, ...where } = placement();
  const actual: ExecActual = {
    seen: { engine: { state: "well", since: 0 }, info: undefined, now: 0, works: new Map(), foreign: [] },
    isActive: true,
    version: "1",
    placement: where,
    addresses: { subnet: "172.31.0.0/24", reserved: new Set() },
    volumes: { kept: new Set(["data"]), isSettled: true, troubles: [] },
    check: () => Promise.resolve(undefined),
  };
  const { config } = readExec(raw);
  return planExec({ config, unreadable: NOBODY, disabled: NOBODY, ...desired }, actual).map(({ kind }) => kind);
}

test("an entry whose id is lost removes no container", async () => {
  const { stage, running } = modelStage();
  await stage.pass({ commands: [itemOf(1), itemOf(2)] });
  const { id: _gone, ...rest } = itemOf(2);
  const { took } = await stage.pass({ commands: [itemOf(1), rest] });
  expect(took).toEqual([]);
  expect(running()).toEqual([idOf(1), idOf(2)]);
});

test("an invalid definition leaves its container unchanged, and a missing one removes it", async () => {
  const { model, stage, running } = modelStage();
  await stage.pass({ commands: [itemOf(1), itemOf(2)] });
  const { took } = await stage.pass({ commands: [itemOf(1, { execType: "sometimes" })] });
  expect(took).toEqual([`remove ${idOf(2)}`]);
  await waitFor("the other is removed", () => model.containers.size === 1);
  expect(running()).toEqual([idOf(1)]);
});

test("an invalid and disabled definition stops its container and keeps it", async () => {
  const { model, stage, running } = modelStage();
  await stage.pass({ commands: [itemOf(1)] });
  const wrong = itemOf(1, { execType: "sometimes", enabled: false });
  const { took } = await stage.pass({ commands: [wrong] });
  expect(took).toEqual([`suspend ${idOf(1)}`]);
  await waitFor("it is stopped", () => running().length === 0);
  expect(model.containers.size).toBe(1);
  expect((await stage.pass({ commands: [wrong] })).took).toEqual([]);
  await stage.pass({ commands: [itemOf(1)] });
  expect(running()).toEqual([idOf(1)]);
});

test("a disabled one stops also when another part of the document is lost", async () => {
  const { stage, running } = modelStage();
  await stage.pass({ commands: [itemOf(1), itemOf(2)] });
  const { id: _gone, ...rest } = itemOf(2);
  await stage.pass({ commands: [itemOf(1, { execType: "sometimes", enabled: false }), rest] });
  await waitFor("the disabled one is stopped", () => !running().includes(idOf(1)));
  expect(running()).toEqual([idOf(2)]);
});

test("only a complete document puts a volume in quarantine", () => {
  expect(volumeKinds({ commands: [], volumes: [] })).toEqual(["put volume away"]);
  expect(volumeKinds({ commands: [], volumes: [{ name: "data", encrypted: "perhaps" }] })).toEqual([]);
  expect(volumeKinds({ commands: [], volumes: [{ encrypted: false }] })).toEqual([]);
  expect(volumeKinds({ commands: [{ name: "no id" }], volumes: [] })).toEqual([]);
  expect(volumeKinds({ commands: [] }, { unreadable: new Set(["a"]) })).toEqual([]);
  expect(volumeKinds({ commands: [] }, { disabled: new Set(["a"]) })).toEqual([]);
});

test("an incomplete document puts no volume in quarantine that may still be wanted", () => {
  const raw = { commands: [], volumes: [{ name: "new" }, { name: "data", location: "../out" }] };
  expect(volumeKinds(raw)).toEqual(["create volume"]);
});
