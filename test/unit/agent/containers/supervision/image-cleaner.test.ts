import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import {
  ImageCleaner,
  type ImageCleanerOptions,
} from "../../../../../src/agent/containers/supervision/image-cleaner.ts";
import { unusedImages } from "../../../../../src/agent/containers/images/image-cleanup.ts";
import { computeColumnsMigration, computeMigration, Ledger } from "../../../../../src/agent/containers/model/ledger.ts";
import { HostError } from "../../../../../src/errors.ts";
import { openDatabase } from "../../../../../src/host/files/database.ts";
import type { ImageSummary } from "../../../../../src/host/engine/engine.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { tempDir } from "../../../../support/temp-dir.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 0, 10);
const image = (id: string, tags: readonly string[] = [`team/${id}:1`]): ImageSummary => ({
  id,
  tags,
  digests: [],
  sizeBytes: 1,
  createdAt: 0,
});
const row = (id: string, usedAt = 0) => ({ id, reference: `team/${id}:1`, usedAt });

test("unused images are those that no container has used for a day and nobody else has tagged", () => {
  const rows = [
    row("old", 1),
    row("older"),
    row("fresh", NOW - DAY_MS + 1),
    row("run"),
    row("named"),
    row("moved"),
    row("gone"),
    row("shared"),
  ];
  const images = ["old", "older", "fresh", "run", "named"].map((id) => image(id));
  images.push(image("moved", []), image("shared", ["team/shared:1", "team/shared:mine"]), image("foreign"));
  const used = { references: new Set(["team/named:1"]), ids: new Set(["run"]) };
  expect(unusedImages(rows, images, used, NOW).map(({ id }) => id)).toEqual(["older", "moved", "old"]);
});

test("an image that the engine refuses to remove does not keep the others", async () => {
  const clock = new FakeClock(NOW);
  const database = openDatabase(`${tempDir()}/state.db`, {
    migrations: [computeMigration, computeColumnsMigration],
    exclusive: true,
  });
  onTestFinished(() => database.sql.close());
  const ledger = new Ledger(database.sql);
  for (const id of ["a", "b"]) ledger.putImage(row(id));
  const requested: string[] = [];
  let changed = (): void => undefined;
  const supervisor = {
    info: { rootDirectory: "/var/lib/docker" },
    engineStanding: { state: "well", since: 0 },
    workers: new Map(),
    onChange: (listener: () => void) => (changed = listener),
    engine: {
      listImages: () => Promise.resolve([image("a"), image("b")]),
      listContainers: () => Promise.resolve([]),
      removeImage(id: string) {
        requested.push(id);
        return id === "a" ? Promise.reject(new HostError("engine-refused", "in use")) : Promise.resolve();
      },
    },
  } as unknown as ImageCleanerOptions["supervisor"];
  const space = () => ({ freeBytes: 1, usedBytes: 99, totalBytes: 100 });
  const cleaner = new ImageCleaner({ supervisor, ledger, clock, log: pino({ level: "silent" }), space });
  onTestFinished(() => cleaner.close());
  changed();
  await clock.advance(600_000);
  await waitFor("both are tried", () => requested.length === 2);
  await waitFor("the second is forgotten", () => !ledger.images.has("b"));
  expect(requested).toEqual(["a", "b"]);
  expect(ledger.images.has("a")).toBe(true);
});
