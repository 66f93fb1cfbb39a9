import { X509Certificate } from "node:crypto";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { fileCertificate, selfSignedCertificate } from "../../../../../src/controller/channel/keys/tls-certificate.ts";
import { temporaryDirectory } from "../../../../support/control-plane/running-controller.ts";

const NOW = Date.UTC(2026, 0, 1);

test("a self-made certificate is for its hosts, kept while it fits, and keeps its key when it does not", async () => {
  const directory = await temporaryDirectory();
  const make = (hosts: readonly string[], now = NOW) => selfSignedCertificate(hostFiles(), directory, hosts, now);
  const first = await make(["cp.example.net", "192.0.2.1"]);
  const parsed = new X509Certificate(first.cert);
  expect(parsed.checkHost("cp.example.net")).toBeDefined();
  expect(parsed.checkIP("192.0.2.1")).toBeDefined();
  expect(first.pin).toMatch(/^[A-Za-z0-9_-]{43}$/);
  expect((await stat(join(directory, "key.pem"))).mode & 0o777).toBe(0o600);
  expect(await make(["192.0.2.1"])).toEqual(first);
  const renewed = await make(["other.example.net"]);
  expect(renewed.cert).not.toBe(first.cert);
  expect(renewed.pin).toBe(first.pin);
  const nineYears = 9.99 * 365 * 24 * 3_600_000;
  expect((await make(["other.example.net"], NOW + nineYears)).cert).not.toBe(renewed.cert);
});

test("the operator's files are read, and what is wrong with them is named", async () => {
  const directory = await temporaryDirectory();
  const files = hostFiles();
  const made = await selfSignedCertificate(files, directory, ["localhost"], NOW);
  const other = await selfSignedCertificate(files, await temporaryDirectory(), ["localhost"], NOW);
  const [cert, key] = [join(directory, "cert.pem"), join(directory, "key.pem")];
  expect(await fileCertificate(files, cert, key)).toEqual(made);
  await expect(fileCertificate(files, join(directory, "none.pem"), key)).rejects.toThrow("none.pem");
  await writeFile(key, other.key);
  await expect(fileCertificate(files, cert, key)).rejects.toThrow("is not the key of");
  await writeFile(cert, "no PEM");
  await expect(fileCertificate(files, cert, key)).rejects.toMatchObject({ code: "certificate-unusable" });
});

test("a damaged key of its own is named and not replaced, and a damaged certificate is made anew", async () => {
  const directory = await temporaryDirectory();
  const make = () => selfSignedCertificate(hostFiles(), directory, ["localhost"], NOW);
  const first = await make();
  await writeFile(join(directory, "cert.pem"), "damaged");
  expect((await make()).pin).toBe(first.pin);
  const path = join(directory, "key.pem");
  await writeFile(path, "damaged");
  await expect(make()).rejects.toMatchObject({ code: "key-damaged", details: { path } });
  expect(await readFile(path, "utf8")).toBe("damaged");
});
