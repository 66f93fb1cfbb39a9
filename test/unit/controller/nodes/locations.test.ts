import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { expect, test } from "vitest";
import { openLocations } from "../../../../src/controller/nodes/locations.ts";
import { hostReader } from "../../../../src/host/reader.ts";
import { mmdb, type MmdbValue } from "../../../support/control-plane/mmdb.ts";
import { addNode, runController } from "../../../support/control-plane/running-controller.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const city = (name: string): MmdbValue => ({
  city: { names: { de: "x", en: name } },
  subdivisions: [{ iso_code: "BE", names: { en: "Land Berlin" } }],
  country: { iso_code: "DE", names: { en: "Germany" } },
  location: { latitude: 52.5, longitude: 13.25 },
  postal: { code: "10115" },
});

function setUp(bytes: Uint8Array) {
  const path = join(tempDir(), "places.mmdb");
  writeFileSync(path, bytes);
  const lines: { level: number; msg: string }[] = [];
  const log = pino({}, { write: (line: string) => void lines.push(JSON.parse(line) as (typeof lines)[number]) });
  const replace = (content: Uint8Array): void => {
    writeFileSync(`${path}.new`, content);
    renameSync(`${path}.new`, path);
  };
  const warnings = (): number => lines.filter(({ level }) => level >= 40).length;
  return { path, log, replace, warnings, open: () => openLocations(path, hostReader(), log) };
}

test("an address has the place of its network, with the parts that the record has", async () => {
  const { open } = setUp(
    mmdb({ "203.0.113.0/25": city("Berlin"), "203.0.113.128/32": { country: { iso_code: "FR" } } }),
  );
  const locations = await open();
  const place = {
    latitude: 52.5,
    longitude: 13.25,
    city: "Berlin",
    region: "Land Berlin",
    country: "DE",
    zipcode: "10115",
  };
  expect(locations.of("203.0.113.7")).toEqual(place);
  expect(locations.of("203.0.113.7")).toEqual(place);
  expect(locations.of("203.0.113.128")).toEqual({ country: "FR" });
  for (const unknown of ["203.0.113.129", "198.51.100.1", "2001:db8::1", "no address", ""]) {
    expect(locations.of(unknown)).toBeUndefined();
  }
});

test("parts of another form are absent", async () => {
  const { open } = setUp(
    mmdb({ "0.0.0.0/1": { city: "Berlin", country: { iso_code: 5 }, location: { latitude: "x" } } }),
  );
  expect((await open()).of("10.0.0.1")).toEqual({});
});

test("a file is read again when it changed, and one that cannot be used is warned of once", async () => {
  const { path, open, replace, warnings } = setUp(mmdb({ "203.0.113.0/24": city("Berlin") }));
  const locations = await open();
  const seen = async () => {
    await locations.refresh();
    return locations.of("203.0.113.7")?.city;
  };
  expect(await seen()).toBe("Berlin");
  const next = mmdb({ "203.0.113.0/24": city("Paris") });
  replace(next.subarray(0, next.length - 40));
  expect([await seen(), await seen(), warnings()]).toEqual(["Berlin", "Berlin", 1]);
  replace(next);
  expect([await seen(), warnings()]).toEqual(["Paris", 1]);
  rmSync(path);
  expect([await seen(), warnings()]).toEqual(["Paris", 2]);
});

test.each([
  ["empty", new Uint8Array()],
  ["of another kind", Buffer.from("not a database".repeat(100))],
  ["without its tree", mmdb({ "203.0.113.0/24": city("Berlin") }).subarray(-150)],
])("a file that is %s is refused, naming the option", async (_what, bytes) => {
  await expect(setUp(bytes).open()).rejects.toMatchObject({
    code: "geo-file-unusable",
    message: expect.stringMatching(/places\.mmdb cannot be used .*--geo-file/) as string,
  });
});

test("a node has the place of its address; a controller does not start without its file", async () => {
  const { path } = setUp(mmdb({ "127.0.0.0/8": city("Home") }));
  const controller = await runController({ geoFile: path });
  const node = await addNode(controller, "edge");
  expect((await controller.nodes.get(node.uid))?.location).toBeUndefined();
  await node.connect();
  expect((await controller.nodes.get(node.uid))?.location).toMatchObject({ city: "Home" });
  expect((await controller.nodes.all())[0]?.location).toMatchObject({ city: "Home" });
  await expect(runController({ geoFile: `${path}.absent` })).rejects.toMatchObject({ code: "geo-file-unusable" });
});
