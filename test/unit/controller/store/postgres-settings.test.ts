import { expect, test } from "vitest";
import { connectionOf, parseStoreUrl } from "../../../../src/controller/store/postgres-settings.ts";
import { everyAuthority } from "../../../../src/host/net/authorities.ts";

test.each([
  ["postgres://u@db.example/s", { host: "db.example", port: 5432, user: "u", database: "s", isVerified: true }],
  ["postgresql://u@db.example:6000/s", { host: "db.example", port: 6000, user: "u", database: "s", isVerified: true }],
  [
    "postgres://u@db.example/s?sslmode=disable",
    { host: "db.example", port: 5432, user: "u", database: "s", isVerified: false },
  ],
  ["postgres://u@127.0.0.1/s", { host: "127.0.0.1", port: 5432, user: "u", database: "s", isVerified: false }],
  [
    "postgres://u@127.0.0.1/s?sslmode=verify-full",
    { host: "127.0.0.1", port: 5432, user: "u", database: "s", isVerified: true },
  ],
  ["postgres://u@[::1]/s", { host: "::1", port: 5432, user: "u", database: "s", isVerified: false }],
  ["postgres://u@[2001:db8::1]/s", { host: "2001:db8::1", port: 5432, user: "u", database: "s", isVerified: true }],
  [
    "postgres://a%40b@%2Frun%2Fpostgresql/s",
    { host: "/run/postgresql", port: 5432, user: "a@b", database: "s", isVerified: false },
  ],
])("%s", (text, address) => {
  expect(parseStoreUrl(text)).toEqual(address);
});

test.each([
  ["mysql://u@db/s", "not the address"],
  ["sqlite", "not the address"],
  ["postgres://u:p@db/s", "--store-password-file"],
  ["postgres://db/s", "lacks the user"],
  ["postgres://u@db", "lacks the user, the host or the database"],
  ["postgres://u@db/s/t", "lacks"],
  ["postgres://u@db/%zz", "broken escape"],
  ["postgres://u@db/s?sslmode=require", "sslmode must be verify-full or disable"],
  ["postgres://u@db/s?sslmode=disable&sslmode=verify-full", "sslmode"],
  ["postgres://u@db/s?options=x", "'options' is not known"],
  ["postgres://u@%2Frun/s?sslmode=verify-full", "Unix socket"],
])("%s is refused", (text, why) => {
  expect(() => parseStoreUrl(text)).toThrow(expect.objectContaining({ code: "invalid-settings" }));
  expect(() => parseStoreUrl(text)).toThrow(why);
});

test("without a file of authorities those of the system and of Node are trusted", () => {
  expect(connectionOf({ address: parseStoreUrl("postgres://u@db/s") }).ssl).toEqual({
    rejectUnauthorized: true,
    ca: everyAuthority(),
  });
});

test("a file of authorities that is missing, or that nothing is checked against, is refused", () => {
  const caFile = "/nowhere/ca.pem";
  expect(() => connectionOf({ address: parseStoreUrl("postgres://u@db/s"), caFile })).toThrow(caFile);
  expect(() => connectionOf({ address: parseStoreUrl("postgres://u@[::1]/s"), caFile })).toThrow("sslmode=verify-full");
});

test("messages name the option of the store that they are about", async () => {
  const address = parseStoreUrl("postgres://u@[::1]/s", "from");
  expect(() => connectionOf({ address, option: "from", caFile: "ca.pem" })).toThrow("--from-ca-file has no effect");
  const verified = { ...address, isVerified: true };
  expect(() => connectionOf({ address: verified, option: "from", caFile: "/nowhere" })).toThrow("--from-ca-file: ");
  const { password } = connectionOf({ address, option: "from" });
  expect(password).toThrow("give --from-password-file");
  expect(() => parseStoreUrl("postgres://u:p@db/s", "to")).toThrow("give --to-password-file");
});
