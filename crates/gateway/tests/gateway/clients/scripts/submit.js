// A form, submitted twice before the first answer is there.
require('./open.js')(async (page, address) => {
  await page.goto(address);
  await page.locator('button').dblclick();
  await page.locator('p').nth(1).waitFor();
  return { answers: await page.locator('p').allTextContents() };
});
