import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { isServed, startL4Stage, talk } from "../../support/overlay/l4-stage.ts";
import { aClient, aServer, echo } from "../../support/overlay/overlay-rig.ts";
import { freePort } from "../../support/machine/programs.ts";
import { isDue, TESTS_ALL } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { waitFor } from "../../support/wait-for.ts";

test.runIf(isDue("connectors under load"))(
  "an overlay under thousands of connects, or without descriptors, still accepts changes, and reports what it lacks",
  async () => {
    const stage = await startL4Stage(tempDir());
    const [busy, late, starved] = [await freePort(), await freePort(), await freePort()];
    await stage.create("services", { name: "web", protocol: "tcp", host: "127.0.0.1", port: await aServer(echo) });
    const entry = { node: "local", service: "web", protocol: "tcp" };
    await stage.create("connectors", { ...entry, port: busy });
    await waitFor("it serves", () => isServed(busy));
    const flow = aClient(busy);
    await talk(flow, "before");

    const clients = Array.from({ length: TESTS_ALL ? 5000 : 2000 }, (_, i) => {
      const client = aClient(busy);
      client.socket.end(String(i));
      return client;
    });
    await stage.create("connectors", { ...entry, port: late });
    await waitFor("all have ended", () => clients.every((client) => client.fate() !== undefined));
    expect(clients.filter((client, i) => client.text() !== String(i)).length).toBe(0);
    await waitFor("the new one serves", () => isServed(late));
    await stage.untilNamed({});

    const pid = stage.overlayPid();
    // Only the soft limit, which its owner may raise again.
    const limit = (descriptors: number): void => {
      execFileSync("prlimit", ["--pid", String(pid), `--nofile=${descriptors}:`]);
    };
    const [, usual] = /^Max open files +(\d+)/m.exec(readFileSync(`/proc/${pid}/limits`, "utf8")) ?? [];
    // Open descriptors stay open, and no more can be opened.
    limit(3);
    const id = await stage.create("connectors", { ...entry, port: starved });
    await stage.untilNamed({ [`connectors.items.${id}`]: "out-of-resources" });
    await talk(flow, "without a descriptor to spare");
    limit(Number(usual));
    await stage.untilNamed({});
    for (const port of [busy, late, starved]) expect(await isServed(port)).toBe(true);
    await talk(flow, "after");
  },
);
