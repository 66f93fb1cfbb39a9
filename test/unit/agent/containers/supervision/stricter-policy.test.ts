import { expect, test } from "vitest";
import type { ContainerPolicy } from "../../../../../src/agent/sections/exec/policy.ts";
import { idOf, itemOf, modelStage } from "../../../../support/reconcile/model-stage.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const STRICT: ContainerPolicy = { allowPrivileged: false, allowBinds: [], allowCapabilities: [] };
const LAX: ContainerPolicy = { ...STRICT, allowPrivileged: true };
const plain = itemOf(1);

/** A running container with more privileges than local policy allows afterwards. */
async function strictened(more: object, lax: ContainerPolicy = LAX) {
  let policy = lax;
  const opened = modelStage({ policy: () => policy });
  await opened.stage.pass({ commands: [itemOf(1, more)] });
  expect(opened.running()).toEqual([idOf(1)]);
  policy = STRICT;
  const worker = opened.stage.supervisor.workers.get(idOf(1));
  const isAtRest = () => worker?.standing.job === undefined;
  return { ...opened, isAtRest };
}

test.each([
  ["it is privileged", { privileged: true }, LAX, "privileged"],
  [
    "it has a capability",
    { capabilities: { addCaps: ["SYS_MODULE"] } },
    { ...STRICT, allowCapabilities: ["SYS_MODULE"] },
    "SYS_MODULE",
  ],
  [
    "it binds a directory of the machine",
    { mounts: [{ uid: "m", mountType: "bind", source: "/etc/cron.d", dest: "/s" }] },
    { ...STRICT, allowBinds: ["/etc/cron.d"] },
    "/etc/cron.d",
  ],
  [
    "it binds a directory of the kernel",
    { mounts: [{ uid: "m", mountType: "bind", source: "/proc/sys", dest: "/s" }] },
    { ...STRICT, allowBinds: ["/proc/sys"] },
    "/proc/sys",
  ],
])("stops what runs before its plain successor exists, since %s", async (_, more, lax, named) => {
  const { model, stage, running, isAtRest } = await strictened(more, lax);
  model.images.delete("team/app:9");
  const commands = [itemOf(1, { image: { repository: "team/app", tag: "9" } })];
  const { after } = await stage.pass({ commands });
  expect(after.waits.map(({ message }) => message)).toEqual([expect.stringContaining(named) as unknown]);
  await waitFor("it is stopped", () => running().length === 0 && isAtRest());
  // Its successor has no image: the former does not return for it.
  await stage.pass({ commands });
  await waitFor("the successor fails", isAtRest);
  expect(running()).toEqual([]);
  await stage.pass({ commands: [plain] });
  await waitFor("the plain one runs", () => running().length === 1 && model.containers.size === 1);
});

test("stops what runs also when its successor is refused or its definition cannot be parsed", async () => {
  const refused = await strictened({ privileged: true });
  const other = { privileged: true, variables: [{ name: "A", value: "2" }] };
  await refused.stage.pass({ commands: [itemOf(1, other)] });
  await waitFor("it is stopped", () => refused.running().length === 0);
  const unread = await strictened({ privileged: true });
  await unread.stage.pass({ commands: [itemOf(1, { image: 7 })] });
  await waitFor("it is stopped", () => unread.running().length === 0);
});

test("an interrupted replacement does not restore what local policy now forbids", async () => {
  let policy = LAX;
  const { stage, killIn } = modelStage({ policy: () => policy });
  await stage.pass({ commands: [itemOf(1, { privileged: true })] });
  const left = await killIn("start", () => stage.pass({ commands: [plain] }));
  policy = STRICT;
  const next = modelStage({ left, policy: () => policy });
  await next.stage.pass({ commands: [itemOf(1, { image: { repository: "team/app", tag: "9" } })] });
  await waitFor("it has been tried", () => next.stage.supervisor.workers.get(idOf(1))?.standing.retry !== undefined);
  expect(next.running()).toEqual([]);
});
