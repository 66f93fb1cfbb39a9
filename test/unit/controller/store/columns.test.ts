import { expect, test } from "vitest";
import { z } from "zod";
import { ParsedTexts, word } from "../../../../src/controller/store/columns.ts";

test("texts are parsed once, each by itself, and wrong ones never", () => {
  const texts = new ParsedTexts("tags", z.record(z.string(), z.string()));
  const first = texts.of(`{"a":"1"}`);
  expect(first).toEqual({ a: "1" });
  expect(texts.of(`{"a":"1"}`)).toBe(first);
  expect(texts.of(`{"a":"2"}`)).toEqual({ a: "2" });
  expect(texts.ofMaybe(null)).toBeUndefined();
  for (let round = 0; round < 2; round += 1) {
    expect(() => texts.of(`{"a":1}`)).toThrow("column tags has an unexpected value");
  }
});

test("neither long texts nor any number of short ones are remembered", () => {
  const texts = new ParsedTexts("list", z.array(z.string()));
  const long = JSON.stringify(["x".repeat(512)]);
  expect(texts.of(long)).not.toBe(texts.of(long));
  const first = texts.of(`["first"]`);
  for (let n = 0; n < 20_000; n += 1) texts.of(`["${n}"]`);
  expect(texts.of(`["first"]`)).not.toBe(first);
  expect(texts.of(`["first"]`)).toEqual(first);
});

test("a word that is none of those expected is refused", () => {
  const Colour = z.enum(["red", "green"]);
  expect(word({ colour: "red" }, "colour", Colour)).toBe("red");
  expect(() => word({ colour: "blue" }, "colour", Colour)).toThrow("column colour has an unexpected value: blue");
});
