//! Signatures out of the RFCs.

use super::algorithm::{Algorithm, Kind};
use super::key::Key;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};

fn bytes(text: &str) -> Vec<u8> {
    BASE64_URL_SAFE_NO_PAD.decode(text).expect("base64url")
}

/// Verifies the signature, and that no other message, signature or algorithm verifies.
fn assert_signed(key: &Key, algorithm: Algorithm, message: &str, signature: &str) {
    let (message, mut signature) = (message.as_bytes(), bytes(signature));
    assert!(key.has_signed(algorithm, message, &signature));
    assert!(!key.has_signed(algorithm, &message[1..], &signature));
    assert!(!key.has_signed(algorithm, message, &[]));
    assert!(!key.has_signed(algorithm, message, &signature[1..]));
    for other in Algorithm::ALL.into_iter().filter(|other| *other != algorithm) {
        assert!(!key.has_signed(other, message, &signature), "{other}");
    }
    *signature.last_mut().expect("a signature") ^= 1;
    assert!(!key.has_signed(algorithm, message, &signature));
}

const CLAIMS: &str =
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";

#[test]
fn rfc_7515_a_1_hs256() {
    let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    let message = format!("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{CLAIMS}");
    let signature = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    assert_signed(&Key::secret(bytes(key)), Algorithm::HS256, &message, signature);
}

#[test]
fn rfc_7515_a_2_rs256() {
    let modulus = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yR\
                   T-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXB\
                   dQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9ia\
                   GNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    let signature = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbd\
                     s9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0Gar\
                     ZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9\
                     Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let key = Key::rsa(&bytes(modulus), &bytes("AQAB")).expect("a key");
    assert_signed(&key, Algorithm::RS256, &format!("eyJhbGciOiJSUzI1NiJ9.{CLAIMS}"), signature);
}

#[test]
fn rfc_7515_a_3_es256() {
    let x = bytes("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU");
    let y = bytes("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0");
    let key = Key::curve(Kind::P256, &x, &y).expect("a key");
    let signature = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    let message = format!("eyJhbGciOiJFUzI1NiJ9.{CLAIMS}");
    assert_signed(&key, Algorithm::ES256, &message, signature);
    for scalar in [0, 0xff] {
        assert!(!key.has_signed(Algorithm::ES256, message.as_bytes(), &[scalar; 64]), "r and s out of range");
    }
    let [r, s] = [&bytes(signature)[..32], &bytes(signature)[32..]];
    for forged in [[r, &[0; 32]].concat(), [&[0; 32], s].concat()] {
        assert!(!key.has_signed(Algorithm::ES256, message.as_bytes(), &forged), "r or s zero");
    }
}

#[test]
fn rfc_8037_a_4_ed25519() {
    let key = Key::ed25519(&bytes("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")).expect("a key");
    let message = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    assert_signed(&key, Algorithm::EdDSA, message, signature);
}

#[test]
fn a_key_that_is_meant_for_one_algorithm_serves_no_other() {
    let mut key = Key::secret(vec![7; 64]);
    assert!(key.serves(Algorithm::HS256) && key.serves(Algorithm::HS512) && !key.serves(Algorithm::RS256));
    key.only = Some(Algorithm::HS512);
    assert!(!key.serves(Algorithm::HS256) && key.serves(Algorithm::HS512));
    let short = Key::secret(vec![7; 47]);
    assert!(short.serves(Algorithm::HS256) && !short.serves(Algorithm::HS384));
}
