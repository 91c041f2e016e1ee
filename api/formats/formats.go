// Package formats has the formats of strings in the API groups. Each format carries its
// validation markers once. Formats with similar rules share the texts of their messages,
// also with IP of the Metal3 API: a marker cannot refer to another marker.
//
// The formats are aliases of string: the markers reach the CRDs, and Go code uses the
// fields without conversions.
package formats

// Address is an IPv4 or IPv6 address in canonical form.
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",messageExpression="isIP(self) ? (ip.isCanonical(self.lowerAscii()) ? 'must be in lower case: write ' + self.lowerAscii() : 'must be in canonical form, as short as can be: 2001:db8::1, not 2001:0DB8:0::1') : self.trim() != self ? 'must have no blanks around it' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.contains('/') ? 'must be an address without a prefix length' : self.contains('%') ? 'must not have a zone' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100'"
type Address = string

// AddressOrEmpty is an Address, or the empty string of clients that write unset fields.
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="self == \"\" || (isIP(self) && ip.isCanonical(self))",messageExpression="isIP(self) ? (ip.isCanonical(self.lowerAscii()) ? 'must be in lower case: write ' + self.lowerAscii() : 'must be in canonical form, as short as can be: 2001:db8::1, not 2001:0DB8:0::1') : self.trim() != self ? 'must have no blanks around it' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.contains('/') ? 'must be an address without a prefix length' : self.contains('%') ? 'must not have a zone' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100'"
type AddressOrEmpty = string

// RecordedAddress is an address that is stored as written, without validation.
// +kubebuilder:validation:MaxLength=39
type RecordedAddress = string

// Network is an IPv4 or IPv6 address, a slash and a prefix length. Host bits may be set.
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",messageExpression="self.trim() != self ? 'must have no blanks around it' : isIP(self) ? 'must have a prefix length: write ' + self + (ip(self).family() == 4 ? '/32' : '/128') + ' for this address alone, a smaller one for a network' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64'"
type Network = string

// PoolNetwork is a Network in canonical form, without host bits and other than ::/0. A
// value that is stored under an earlier schema may have host bits.
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",messageExpression="self.trim() != self ? 'must have no blanks around it' : isIP(self) ? 'must have a prefix length: write ' + self + (ip(self).family() == 4 ? '/32' : '/128') + ' for this address alone, a smaller one for a network' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64'"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || !isCIDR(self) || string(cidr(self).masked()) == self",optionalOldSelf=true,messageExpression="string(cidr(self).masked()) == self.lowerAscii() ? 'must be in lower case: write ' + self.lowerAscii() : string(cidr(self)) == self.lowerAscii() ? 'has bits set after the prefix: write the first address of the network before it, as in 10.40.0.0/24 for 10.40.0.5/24' : 'must be in canonical form, as short as can be and without bits set after the prefix: 2001:db8::/64, not 2001:0DB8:0::1/64'"
// +kubebuilder:validation:XValidation:rule="self != '::/0'",message="cidr ::/0 is more than a pool can hold: use a longer prefix"
type PoolNetwork = string

// HostAddress is an address with an optional prefix length, such as 10.200.0.1/32.
// +kubebuilder:validation:MaxLength=49
type HostAddress = string

// ObjectName is the name of a Kubernetes object: a DNS subdomain.
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
type ObjectName = string
