//! The name in a client certificate, which has to stay the same when the certificate is renewed.
//!
//! The listener has verified the certificate. Fingerprints and serial numbers change with each renewal, so they are
//! not names; several names are refused.

use super::der::{item, take};
use std::fmt;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const VERSION: u8 = 0xa0;
const ISSUER_ID: u8 = 0x81;
const SUBJECT_ID: u8 = 0x82;
const EXTENSIONS: u8 = 0xa3;
/// 2.5.29.17, `subjectAltName`.
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];

/// Which name of a certificate identifies the caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CertificateName {
    /// The whole subject.
    #[default]
    Subject,
    /// The only URI among the alternative names, as in SPIFFE.
    Uri,
    /// The only DNS name among them.
    Dns,
    /// The only e-mail address among them.
    Email,
}

impl CertificateName {
    /// The kind of name, which is part of the caller's identity: changing this word changes every caller.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::Uri => "uri",
            Self::Dns => "dns",
            Self::Email => "email",
        }
    }

    /// The tag of such an alternative name; the subject has none.
    const fn tag(self) -> Option<u8> {
        match self {
            Self::Subject => None,
            Self::Email => Some(0x81),
            Self::Dns => Some(0x82),
            Self::Uri => Some(0x86),
        }
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Subject => "subject",
            Self::Uri => "URI",
            Self::Dns => "DNS name",
            Self::Email => "e-mail address",
        })
    }
}

/// Why a certificate does not identify a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CertificateRefusal {
    Malformed,
    None(CertificateName),
    Several(CertificateName),
    /// It belongs to a workload, whose name is its URI; all workloads may share one subject.
    Workload,
}

impl fmt::Display for CertificateRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("it cannot be read"),
            Self::None(by) => write!(f, "it has no {by}"),
            Self::Several(by) => write!(f, "it has more than one {by}"),
            Self::Workload => f.write_str(
                "it belongs to a workload, whose name is its SPIFFE URI and not its subject. (Service: \
                    write \"mtls:uri\" \
                 in `identity.sources`.)",
            ),
        }
    }
}

/// The name of `certificate`'s holder: the same for all certificates of that holder, and different for others.
pub(super) fn name(certificate: &[u8], by: CertificateName) -> Result<Vec<u8>, CertificateRefusal> {
    let (subject, alternatives) = parts(certificate).ok_or(CertificateRefusal::Malformed)?;
    let all = all(alternatives).ok_or(CertificateRefusal::Malformed)?;
    let Some(tag) = by.tag() else {
        let is_workload = |(tag, name): &(u8, &[u8])| {
            Some(*tag) == CertificateName::Uri.tag() && name.to_ascii_lowercase().starts_with(b"spiffe://")
        };
        if all.iter().any(is_workload) {
            return Err(CertificateRefusal::Workload);
        }
        let subject = canonical(subject).ok_or(CertificateRefusal::Malformed)?;
        return if subject.is_empty() {
            Err(CertificateRefusal::None(by))
        } else {
            Ok(named(b"subject", &subject))
        };
    };
    let mut fitting = all.iter().filter(|(found, name)| *found == tag && !name.is_empty());
    let (_, name) = fitting.next().ok_or(CertificateRefusal::None(by))?;
    if fitting.next().is_some() {
        return Err(CertificateRefusal::Several(by));
    }
    Ok(match by {
        CertificateName::Dns => named(b"dns", &name.to_ascii_lowercase()),
        CertificateName::Email => named(b"email", name),
        CertificateName::Uri | CertificateName::Subject => named(b"uri", name),
    })
}

/// A name together with its kind, so that a URI never equals a DNS name.
fn named(kind: &[u8], name: &[u8]) -> Vec<u8> {
    [kind, b"\0", name].concat()
}

/// The subject, and the extensions where there are any (RFC 5280, 4.1).
fn parts(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (certificate, []) = take(certificate, SEQUENCE)? else { return None };
    let (signed, _) = take(certificate, SEQUENCE)?;
    let (_, rest) = take(past(signed, VERSION), INTEGER)?;
    let (_algorithm, rest) = take(rest, SEQUENCE)?;
    let (_issuer, rest) = take(rest, SEQUENCE)?;
    let (_validity, rest) = take(rest, SEQUENCE)?;
    let (subject, rest) = take(rest, SEQUENCE)?;
    let (_key, rest) = take(rest, SEQUENCE)?;
    let rest = past(past(rest, ISSUER_ID), SUBJECT_ID);
    if rest.is_empty() {
        return Some((subject, &[]));
    }
    let (extensions, []) = take(rest, EXTENSIONS)? else { return None };
    let (extensions, []) = take(extensions, SEQUENCE)? else { return None };
    Some((subject, extensions))
}

/// The input after an optional item.
fn past(input: &[u8], tag: u8) -> &[u8] {
    take(input, tag).map_or(input, |(_, rest)| rest)
}

/// Every alternative name with its tag.
fn all(mut extensions: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut found = Vec::new();
    while !extensions.is_empty() {
        let (extension, rest) = take(extensions, SEQUENCE)?;
        extensions = rest;
        let (id, value) = take(extension, OID)?;
        if id != ALTERNATIVE_NAMES {
            continue;
        }
        let (value, []) = take(past(value, BOOLEAN), OCTET_STRING)? else { return None };
        let (mut names, []) = take(value, SEQUENCE)? else { return None };
        while !names.is_empty() {
            let (tag, name, rest) = item(names)?;
            names = rest;
            found.push((tag, name));
        }
    }
    Some(found)
}

/// A subject in a form that does not depend on the type of strings that an authority uses, which may change with its
/// software. Letter case is significant: names that differ in case may belong to two people.
fn canonical(mut subject: &[u8]) -> Option<Vec<u8>> {
    let mut encoded = Vec::new();
    while !subject.is_empty() {
        let (mut set, rest) = take(subject, SET)?;
        subject = rest;
        let mut attributes = Vec::new();
        while !set.is_empty() {
            let (attribute, rest) = take(set, SEQUENCE)?;
            set = rest;
            let (id, value) = take(attribute, OID)?;
            let (tag, value, []) = item(value)? else { return None };
            let mut one = Vec::new();
            put(&mut one, id)?;
            if let Some(text) = text(tag, value).ok()? {
                put(&mut one, text.as_bytes())?;
            } else {
                put(&mut one, &[tag])?;
                put(&mut one, value)?;
            }
            attributes.push(one);
        }
        // A set is not ordered.
        attributes.sort_unstable();
        let mut together = Vec::new();
        for one in attributes {
            put(&mut together, &one)?;
        }
        put(&mut encoded, &together)?;
    }
    Some(encoded)
}

/// With its length before it, so that parts cannot run together.
fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    out.extend_from_slice(&u32::try_from(bytes.len()).ok()?.to_be_bytes());
    out.extend_from_slice(bytes);
    Some(())
}

/// It does not match its type of string.
struct Malformed;

/// The text of a string, if its type says how to read it.
fn text(tag: u8, value: &[u8]) -> Result<Option<String>, Malformed> {
    const UTF8: u8 = 0x0c;
    const NUMERIC: u8 = 0x12;
    const PRINTABLE: u8 = 0x13;
    const IA5: u8 = 0x16;
    const UNIVERSAL: u8 = 0x1c;
    const BMP: u8 = 0x1e;
    let utf8 = || String::from_utf8(value.to_vec()).ok();
    let text = match tag {
        UTF8 => utf8(),
        NUMERIC | PRINTABLE | IA5 => utf8().filter(|text| text.is_ascii()),
        BMP => {
            let (pairs, rest) = value.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            String::from_utf16(&units).ok().filter(|_| rest.is_empty())
        }
        UNIVERSAL => {
            let (fours, rest) = value.as_chunks::<4>();
            let letters = fours.iter().map(|four| char::from_u32(u32::from_be_bytes(*four)));
            letters.collect::<Option<String>>().filter(|_| rest.is_empty())
        }
        _ => return Ok(None),
    };
    text.map(Some).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};

    fn made(subject: &[(DnType, DnValue)], names: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        params.subject_alt_names = names;
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(text.try_into().expect("ASCII"))
    }

    fn dns(text: &str) -> SanType {
        SanType::DnsName(text.try_into().expect("ASCII"))
    }

    fn of(subject: &[(DnType, DnValue)]) -> Result<Vec<u8>, CertificateRefusal> {
        name(&made(subject, vec![]), CertificateName::Subject)
    }

    #[test]
    fn a_renewed_certificate_names_the_same_holder_in_any_string_type() {
        let cn = DnType::CommonName;
        let first = of(&[(cn.clone(), utf8("alice"))]).expect("a name");
        let printable = DnValue::PrintableString("alice".try_into().expect("printable"));
        let bmp = DnValue::BmpString("alice".try_into().expect("a text"));
        let universal = DnValue::UniversalString("alice".try_into().expect("a text"));
        for value in [utf8("alice"), printable, bmp, universal] {
            assert_eq!(
                of(&[(cn.clone(), value)]),
                Ok(first.clone()),
                "each has a key and a serial of its own"
            );
        }
        assert_ne!(of(&[(cn, utf8("Alice"))]), Ok(first));
    }

    #[test]
    fn no_two_subjects_are_one_however_their_parts_are_cut() {
        let (cn, o) = (DnType::CommonName, DnType::OrganizationName);
        let subjects = [
            vec![(cn.clone(), utf8("ab")), (o.clone(), utf8("c"))],
            vec![(cn.clone(), utf8("a")), (o.clone(), utf8("bc"))],
            vec![(o.clone(), utf8("ab")), (cn.clone(), utf8("c"))],
            vec![(cn.clone(), utf8("abc"))],
            vec![(o, utf8("abc"))],
            vec![(cn, utf8("ab,O=c"))],
        ];
        let mut names: Vec<_> = subjects.iter().map(|subject| of(subject).expect("a name")).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), subjects.len());
    }

    #[test]
    fn a_certificate_needs_exactly_one_name() {
        assert_eq!(of(&[]), Err(CertificateRefusal::None(CertificateName::Subject)));
        let alice = [(DnType::CommonName, utf8("alice"))];
        let certificate = made(&alice, vec![dns("a.example"), dns("b.example"), uri("urn:x:1")]);
        assert_eq!(
            name(&certificate, CertificateName::Dns),
            Err(CertificateRefusal::Several(CertificateName::Dns))
        );
        assert_eq!(
            name(&certificate, CertificateName::Email),
            Err(CertificateRefusal::None(CertificateName::Email))
        );
        assert_eq!(name(&certificate, CertificateName::Uri), Ok(b"uri\0urn:x:1".to_vec()));
        assert!(name(&certificate, CertificateName::Subject).is_ok());
        let one = made(&alice, vec![dns("A.Example")]);
        assert_eq!(name(&one, CertificateName::Dns), Ok(b"dns\0a.example".to_vec()));
    }

    #[test]
    fn a_workloads_shared_subject_is_not_a_name() {
        let spire = [(DnType::CountryName, utf8("US")), (DnType::OrganizationName, utf8("SPIRE"))];
        let certificate = made(&spire, vec![uri("spiffe://prod.example/payments")]);
        assert_eq!(name(&certificate, CertificateName::Subject), Err(CertificateRefusal::Workload));
        assert_eq!(
            name(&certificate, CertificateName::Uri),
            Ok(b"uri\0spiffe://prod.example/payments".to_vec())
        );
    }

    #[test]
    fn truncated_input_is_malformed() {
        let certificate = made(&[(DnType::CommonName, utf8("alice"))], vec![dns("a.example")]);
        for end in 0..certificate.len() {
            assert_eq!(
                name(&certificate[..end], CertificateName::Subject),
                Err(CertificateRefusal::Malformed),
                "{end}"
            );
        }
        for at in 0..certificate.len() {
            let mut changed = certificate.clone();
            changed[at] ^= 0xff;
            drop(name(&changed, CertificateName::Dns));
        }
    }
}
