import { expect, test } from "vitest";
import { aListener, aServer, aService, echo } from "../../../support/overlay/overlay-rig.ts";
import { ownerRig } from "../../../support/network/owner-rig.ts";
import { freePort } from "../../../support/machine/programs.ts";
import { waitFor } from "../../../support/wait-for.ts";

test("returns the last view without a request, and none of an overlay that exited", async () => {
  const rig = ownerRig();
  const { owner } = rig;
  expect(owner.view.listeners.size).toBe(0);
  const target = await aServer(echo);
  const listener = aListener(await freePort(), { service: "web" });
  const put = { services: { put: [aService("web", target)], drop: [] }, listeners: { put: [listener], drop: [] } };
  await owner.change(put, new AbortController().signal);
  expect([...owner.view.services.keys()]).toEqual(["web"]);
  expect(owner.view.states.get(listener.key)).toMatchObject({ state: "listening" });
  rig.running.at(-1)?.close();
  await waitFor("it has exited", () => owner.status().state === "down");
  expect([owner.view.services.size, owner.view.listeners.size, owner.view.states.size]).toEqual([0, 0, 0]);
});
