import { expect, test } from "vitest";
import { cut, drop, heal, pause, roam } from "../../scripts/labs/faults.ts";
import { GATEWAY_PORT } from "../../scripts/labs/layout.ts";
import {
  aTalker,
  ECHO_PORT,
  eventsOf,
  healAfter,
  meshStage,
  talk,
  untilOver,
  untilServed,
  type Talker,
} from "../support/mesh-stage.ts";
import { carrierOf, pathsOf } from "../support/mesh-paths.ts";
import { waitFor } from "../support/wait-for.ts";

const stage = meshStage();
const PORT = 7001;

/** A flow from A to B, and the gateway that carries it; what is necessary for it is made once. */
async function aFlow(): Promise<{ flow: Talker; carrier: string; other: string }> {
  const { lab } = stage;
  if (!isMade) {
    isMade = true;
    await stage.service("b", { name: "echo", protocol: "tcp", host: "127.0.0.1", port: ECHO_PORT });
    await stage.connector("a", { node: "b", service: "echo", port: PORT });
  }
  await waitFor("every path is up", async () =>
    [...(await pathsOf(lab, "a")), ...(await pathsOf(lab, "b"))].every(({ state }) => state === "up"),
  );
  const flow = await untilServed(lab, "a", PORT);
  const carrier = await carrierOf(lab, "a");
  return { flow, carrier, other: carrier === "gw1" ? "gw2" : "gw1" };
}
let isMade = false;

test("both gateways are held up, and either carries", async () => {
  const { lab } = stage;
  healAfter(lab);
  const { carrier, other } = await aFlow();
  expect((await pathsOf(lab, "a")).map(({ gateway }) => gateway).sort()).toEqual(["gw1", "gw2"]);
  for (const [cutOne, left] of [
    [carrier, other],
    [other, carrier],
  ] as const) {
    cut(lab, cutOne);
    await waitFor(`${left} carries`, async () => (await carrierOf(lab, "a")) === left);
    await untilServed(lab, "a", PORT);
    await heal(lab);
    await waitFor(`${cutOne} is up again`, async () =>
      (await pathsOf(lab, "a")).every(({ state }) => state === "up"),
    );
  }
});
